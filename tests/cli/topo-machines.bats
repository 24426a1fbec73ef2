# SPDX-License-Identifier: MIT
# Each folder of tests/data/topo is a machine: its recording, and expected.FORMAT for each format.
# With TASUKI_UPDATE=1 the expected files are written instead: look at what changed.

load topo.bash

setup() {
    unset HWLOC_XMLFILE CUDA_VISIBLE_DEVICES
    needs_hwloc
}

# Every machine in format $1, all differences before the test fails.
compare() {
    local format=$1 wrong=0 machine data=$srcdir/tests/data/topo
    cd "$BATS_TEST_TMPDIR"
    for folder in "$data"/*/; do
        machine=$(basename "$folder")
        unpack "$machine" .
        topo_of "$machine" --format "$format" >"$machine.out" 2>&1 ||
            [[ $format == nccl-xml && $(<"$machine.out") == *"PCI tree was not collected"* ]] ||
            { cat "$machine.out"; wrong=1; }
        [ -z "$TASUKI_UPDATE" ] || cp "$machine.out" "$data/$machine/expected.$format"
        diff "$data/$machine/expected.$format" "$machine.out" || wrong=1
    done
    [ $wrong -eq 0 ]
}

@test "every recorded machine is described in text as expected" {
    compare text
}

@test "every recorded machine is described in JSON as expected" {
    compare json
}

@test "every recorded machine is drawn as expected" {
    compare svg
}

@test "every recorded machine is described for Graphviz as expected" {
    compare dot
}

@test "every recorded machine with a PCI tree is described for NCCL as expected" {
    compare nccl-xml
}

@test "a machine that is read back from JSON is described the same" {
    local wrong=0 machine
    cd "$BATS_TEST_TMPDIR"
    for folder in "$srcdir"/tests/data/topo/*/; do
        machine=$(basename "$folder")
        "$TASUKI" topo --input "$folder/expected.json" >"$machine.text" 2>&1 || wrong=1
        diff "$folder/expected.text" "$machine.text" || wrong=1
        "$TASUKI" topo --input "$folder/expected.json" --format json >"$machine.json" || wrong=1
        diff "$folder/expected.json" "$machine.json" || wrong=1
    done
    [ $wrong -eq 0 ]
}
