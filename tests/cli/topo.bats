# SPDX-License-Identifier: MIT
# tasuki topo alone: this node, and machines that are only described.

setup() {
    unset HWLOC_XMLFILE
    data=$srcdir/tests/data
}

needs_hwloc() {
    "$TASUKI" info | grep -q '^hwloc *built in' || skip "built without hwloc"
}

@test "topo describes this node" {
    run "$TASUKI" topo
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == "node $(hostname) (from "* ]]
    [[ "$output" == *"this node: 1 node, 1 device"* ]]
    [[ "$output" == *"$(hostname)/cpu0"* ]]
}

@test "topo writes a file that has schema and version" {
    run "$TASUKI" topo --format json -o "$BATS_TEST_TMPDIR/topo.json"
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    grep -q '"schema": "tasuki-topo"' "$BATS_TEST_TMPDIR/topo.json"
    grep -q '"version": 1' "$BATS_TEST_TMPDIR/topo.json"
}

@test "topo describes a machine of hwloc's XML with its GPUs and NICs" {
    needs_hwloc
    run "$TASUKI" topo --input "$data/gpu-node.xml"
    [ "$status" -eq 0 ]
    diff <(sed "s|$data/||" <<<"$output") "$data/gpu-node.txt"
}

@test "topo heeds HWLOC_XMLFILE" {
    needs_hwloc
    HWLOC_XMLFILE=$data/gpu-node.xml run "$TASUKI" topo
    [ "$status" -eq 0 ]
    [[ "$output" == *"8 cores, 16 threads"* ]]
}

@test "an XML file that is not there is named" {
    needs_hwloc
    run "$TASUKI" topo --input /nonexistent.xml
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"/nonexistent.xml: No such file"* ]]
}

# hwloc itself crashes on some of these: then the error says so, and tasuki does not crash.
@test "XML that is cut or altered is described or refused" {
    needs_hwloc
    local refused=0 bytes size=$(wc -c <"$data/gpu-node.xml") at
    for ((i = 1; i <= 60; i++)); do
        at=$((i * 7919 % size))
        if ((i % 2)); then
            head -c $at "$data/gpu-node.xml" >"$BATS_TEST_TMPDIR/x.xml"
        else
            { head -c $at "$data/gpu-node.xml"
              printf '%d' $((i * 104729 % 100000))
              tail -c +$((at + 4)) "$data/gpu-node.xml"; } >"$BATS_TEST_TMPDIR/x.xml"
        fi
        run "$TASUKI" topo --input "$BATS_TEST_TMPDIR/x.xml"
        echo "$i: $status: $output"
        [ "$status" -eq 0 ] || [ "$status" -eq 1 ]
        [ "$status" -eq 0 ] || refused=$((refused + 1))
        [ "$status" -eq 0 ] || [[ "$output" == *"$BATS_TEST_TMPDIR/x.xml"* ]]
    done
    [ $refused -ge 30 ]
}

@test "topo into a folder that is not there is an error" {
    run "$TASUKI" topo -o /nonexistent/topo.txt
    [ "$status" -eq 1 ]
    [[ "$output" == *"/nonexistent/"* ]]
}

@test "topo takes no operand" {
    run "$TASUKI" topo here
    [ "$status" -eq 2 ]
}

@test "an option that only goes with another is refused without it" {
    run "$TASUKI" topo --force
    [ "$status" -eq 2 ]
    [[ "$output" == *"--force"*"--save-machine"* ]]
    run "$TASUKI" topo --input laptop --measure=full
    [ "$status" -eq 2 ]
    [[ "$output" == *"--measure"*"--input"* ]]
    "$TASUKI" topo --input laptop --measure=none >"$BATS_TEST_TMPDIR/out"
}

@test "names from a file do not reach the terminal as commands to it" {
    echo '{"schema": "tasuki-topo", "version": 1, "name": "t", "root": {"children": [
        {"kind": "node", "name": "\u001b[31mred", "children": [{"kind": "device",
         "id": "g", "device": "\u007fa\tb"}]}]}}' >"$BATS_TEST_TMPDIR/names.json"
    for format in text svg dot; do
        run "$TASUKI" topo --input "$BATS_TEST_TMPDIR/names.json" --format $format
        echo "$output"
        [ "$status" -eq 0 ]
        [[ "$output" == *"[31mred"* ]]
        [[ "$output" != *[$'\e\t\x7f']* ]]
    done
}
