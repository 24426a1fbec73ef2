# SPDX-License-Identifier: MIT
# tasuki topo --check and --diff on recorded machines; tests/unit/test_check.c plants the faults.

setup() {
    unset HWLOC_XMLFILE
    data=$srcdir/tests/data/topo
}

@test "the check of one node finds its dead NVLink" {
    run "$TASUKI" topo --check --input "$data/dead-nvlink/expected.json"
    echo "$output"
    [ "$status" -eq 3 ]
    [[ "$output" == "2 problems on 1 of 1 node"* ]]
    [[ "$output" == *"GPU1: NVLinks up: 11 of 12; other GPUs of the node have 12"* ]]
    [[ "$output" != *"--exclude"* ]]
}

@test "the check of a GPU that is lost names it" {
    run "$TASUKI" topo --check --input "$data/lost-gpu/expected.json" --format json
    echo "$output"
    [ "$status" -eq 3 ]
    [[ "$output" == *'"schema": "tasuki-topo-check"'* ]]
    [[ "$output" == *"GPU is lost"* ]]
}

@test "the check of a healthy machine finds nothing" {
    for machine in dgx1 dgx2 hgx-h100 omni-path one-socket mig no-gpu arm; do
        run "$TASUKI" topo --check --input "$data/$machine/expected.json"
        echo "$machine: $output"
        [ "$status" -eq 0 ]
        [[ "$output" == "0 problems on 0 of 1 node" ]]
    done
}

@test "two machines differ in what the diff says" {
    run "$TASUKI" topo --diff "$data/dead-nvlink/expected.json" "$data/slurm-step/expected.json"
    echo "$output"
    [ "$status" -eq 3 ]
    [[ "$output" == *"GPU0: NVLinks up: 11 of 12 | not collected"* ]]
    [[ "$output" == *"GPUs that the driver shows: 4 | 2"* ]]
}

@test "a machine does not differ from itself" {
    run "$TASUKI" topo --diff "$data/dgx1/expected.json" "$data/dgx1/expected.json"
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    run "$TASUKI" topo --diff --format json --input "$data/dgx1/expected.json" dgx1 dgx1
    [ "$status" -eq 0 ]
    [[ "$output" == *'"differences": []'* ]]
}

@test "recordings of several nodes are compared name by name" {
    two=$BATS_TEST_TMPDIR/two.json
    "$TASUKI" topo --input "$data/dgx1/expected.json" --format json >"$two"
    sed -e 's/^ *"dgx1"$/"n2", "n1"/' -e 's/"own": \[/"own": [{},/' "$two" >"$BATS_TEST_TMPDIR/a.json"
    sed -e 's/"n2"/"n3"/' -e 's/"up": 1/"up": 0/' "$BATS_TEST_TMPDIR/a.json" \
        >"$BATS_TEST_TMPDIR/b.json"
    cd "$BATS_TEST_TMPDIR"
    run "$TASUKI" topo --diff a.json b.json
    echo "$output"
    [ "$status" -eq 3 ]
    [[ "$output" == "n2: only in a.json"$'\n'"n1"$'\n'"  GPU0: NVLinks up: 6 of 6 | 0 of 6"* ]]
    [[ "$output" == *$'\n'"n3: only in b.json" ]]
    run "$TASUKI" topo --diff a.json b.json --format json
    [ "$status" -eq 3 ]
    [[ "$output" == *'"host": "n3"'*'"only": "other"'* ]]
    run "$TASUKI" topo --diff a.json a.json
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

@test "operands that are too few, too many or not there are named" {
    run "$TASUKI" topo --diff "$data/dgx1/expected.json"
    [ "$status" -eq 2 ]
    run "$TASUKI" topo dgx1
    [ "$status" -eq 2 ]
    [[ "$output" == *'"dgx1"'* ]]
    run "$TASUKI" topo --diff --input "$data/dgx1/expected.json" dgx1 dgx7
    [ "$status" -eq 1 ]
    [[ "$output" == *'no node "dgx7"'* ]]
    run "$TASUKI" topo --check --format svg --input "$data/dgx1/expected.json"
    [ "$status" -eq 2 ]
}

@test "where no hardware is described, nothing is called healthy or alike" {
    tree=$BATS_TEST_TMPDIR/tree.json
    echo '{"schema": "tasuki-topo", "version": 1, "name": "t", "root": {"children": [
        {"kind": "node", "name": "n1", "children": [{"kind": "device", "id": "n1/gpu0",
         "device": "V100-SXM2-32GB"}]}]}}' >"$tree"
    "$TASUKI" topo --input "$tree"
    for file in "$tree" "$data/slurm-job/expected.json"; do
        for asked in "--check --input $file" "--diff $file $data/dgx1/expected.json" \
            "--diff $data/dgx1/expected.json $file" "--diff --input $file n1 n1"; do
            # shellcheck disable=SC2086
            run "$TASUKI" topo $asked
            echo "$asked: $output"
            [ "$status" -eq 1 ]
            [[ "$output" == *"$file: "*"--check and --diff need"* ]]
        done
    done
    run "$TASUKI" topo --check --diff "$data/dgx1/expected.json" "$data/dgx2/expected.json"
    [ "$status" -eq 2 ]
}

@test "what a container hides of its host is found" {
    mkdir -p "$BATS_TEST_TMPDIR/sys/class/infiniband/mlx5_0" "$BATS_TEST_TMPDIR/none"
    [ ! -e /dev/infiniband ] || skip "this machine has InfiniBand"
    export APPTAINER_CONTAINER=/images/tasuki.sif PMIX_VERSION=4.2.2
    TASUKI_SYSFS=$BATS_TEST_TMPDIR/sys run "$TASUKI" topo --check
    echo "$output"
    [ "$status" -eq 3 ]
    [[ "$output" == *"hidden by the container: /dev/infiniband is not there"*"apptainer --bind"* ]]
    [[ "$output" != *"/sys is not there"* ]]
    TASUKI_SYSFS=$BATS_TEST_TMPDIR/none run "$TASUKI" topo --check
    [ "$status" -eq 3 ]
    [[ "$output" == *"hidden by the container: /sys is not there"* ]]
}

@test "a driver that the kernel has and the container lacks is found" {
    [ ! -e /dev/infiniband ] || skip "this machine has InfiniBand"
    mkdir -p "$BATS_TEST_TMPDIR/sys/class/net" "$BATS_TEST_TMPDIR/proc/driver/nvidia"
    echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104" \
        >"$BATS_TEST_TMPDIR/proc/driver/nvidia/version"
    export APPTAINER_CONTAINER=/images/tasuki.sif TASUKI_SYSFS=$BATS_TEST_TMPDIR/sys \
        TASUKI_PROCFS=$BATS_TEST_TMPDIR/proc TASUKI_NVML=/nonexistent/libnvidia-ml.so.1
    run "$TASUKI" topo --check
    echo "$output"
    [ "$status" -eq 3 ]
    [[ "$output" == "1 problem on 1 of 1 node"* ]]
    [[ "$output" == *"hidden by the container: NVIDIA's driver is not there: no GPU can be used"$'\n'*\
"--nv for the driver"* ]]
    printf 'gpu 0000:10:00.0\nname Tesla P100-SXM2-16GB\nuuid GPU-1\n' >"$BATS_TEST_TMPDIR/nvml.txt"
    export TASUKI_NVML=$builddir/tests/.libs/fake_nvml.so TASUKI_FAKE_NVML=$BATS_TEST_TMPDIR/nvml.txt
    run "$TASUKI" topo --check
    echo "$output"
    [ "$status" -eq 0 ]
    # Outside of one neither is looked for; the machine of this test may be one itself.
    unset APPTAINER_CONTAINER
    [ ! -e /.dockerenv ] && [ ! -e /run/.containerenv ] && [ ! -e /.singularity.d ] || return 0
    TASUKI_NVML=/nonexistent/libnvidia-ml.so.1 run "$TASUKI" topo --check
    [ "$status" -eq 0 ]
    [[ "$output" != *PMIx* ]]
}

# The version of the PMIx that tasuki-mpi.so is linked to; none without.
client_version() {
    local module=$TASUKI_PKGLIBDIR/tasuki-mpi.so library
    library=$(ldd "$module" 2>/dev/null | awk '/libpmix/ { print $3; exit }')
    [ -n "$library" ] || library=none
    [ "$library" = none ] || library=$(strings "$library" |
        sed -nE 's/^OpenPMIx ([0-9]+\.[0-9]+\.[0-9]+[a-z0-9]*)[, ].*/\1/p' | head -n 1)
    echo "$library"
}

@test "inside a container the check says which PMIx the program and the launcher have" {
    local client
    [ ! -e /dev/infiniband ] || skip "this machine has InfiniBand"
    mkdir -p "$BATS_TEST_TMPDIR/sys/class/net"
    export APPTAINER_CONTAINER=/images/tasuki.sif TASUKI_SYSFS=$BATS_TEST_TMPDIR/sys
    client=$(client_version)
    [ -n "$client" ]
    PMIX_VERSION=4.2.2 run "$TASUKI" topo --check
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$output" = "0 problems on 0 of 1 node"$'\n'"PMIx: client $client, server 4.2.2" ]
    PMIX_VERSION=4.2.2 run "$TASUKI" topo --check --format json
    [[ "$output" == *"\"text\": \"PMIx: client $client, server 4.2.2\""* ]]
    env -u PMIX_VERSION "$TASUKI" topo --check | grep -x "PMIx: client $client, server none"
    TASUKI_PKGLIBDIR=$BATS_TEST_TMPDIR PMIX_VERSION=4.2.2 run "$TASUKI" topo --check
    [ "$status" -eq 0 ]
    [[ "$output" == *$'\n'"PMIx: client none, server 4.2.2" ]]
    PMIX_VERSION=4.2.2 run "$TASUKI" topo
    [[ "$output" == *"inside a container of Apptainer"*"PMIx "*"client $client, server 4.2.2"* ]]
    # It is no part of what the machine is.
    "$TASUKI" topo -q --save-machine here -o "$BATS_TEST_TMPDIR/here.json"
    grep -q '"nodes"' "$BATS_TEST_TMPDIR/here.json"
    ! grep -E '"(container|pmix_)' "$BATS_TEST_TMPDIR/here.json" || false
}

@test "a launcher whose PMIx is too old for that of the container is found" {
    [ ! -e /dev/infiniband ] || skip "this machine has InfiniBand"
    [ "$(client_version)" != none ] || skip "built without PMIx"
    mkdir -p "$BATS_TEST_TMPDIR/sys/class/net"
    export APPTAINER_CONTAINER=/images/tasuki.sif TASUKI_SYSFS=$BATS_TEST_TMPDIR/sys
    PMIX_VERSION=2.2.5 run "$TASUKI" topo --check
    echo "$output"
    [ "$status" -eq 3 ]
    [[ "$output" == *"PMIx inside and outside the container: client "*", server 2.2.5; clients of \
another series take servers from 3.2 on"* ]]
    [[ "$output" == *"PMIx: client "*", server 2.2.5"* ]]
    [[ "$output" != *--exclude* ]]
}
