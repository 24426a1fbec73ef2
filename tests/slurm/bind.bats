# SPDX-License-Identifier: MIT
# The cores that ranks of the launcher's steps have, under a Slurm that binds tasks.

load common

setup_file() {
    export LAB_DIR=$BATS_FILE_TMPDIR/lab LAB_NODES=2 LAB_CPUS=2 LAB_BIND=affinity
    local reason=
    [ "$(nproc)" -ge 2 ] || reason="this machine has one core"
    start_slurm_lab "$reason"
}

teardown_file() {
    stop_lab
}

setup() {
    [ -z "$WHY_NOT" ] || skip "$WHY_NOT"
    mpi_environment
    cd "$BATS_TEST_TMPDIR"
}

# Train on all nodes, with two ranks on each, and write the CPUs that the threads of each rank may
# run on into n1 and n2, a line each, in the order of ranks.
look_at_ranks() {
    local demo=$srcdir/etc/demo node pid job
    rm -f log
    TASUKI_TEST_DELAY=1:30000 "$lab" run timeout -s KILL 120 salloc -Q -N2 "$@" \
        "$TASUKI" train "$demo/digits.onnx" --data "$demo/digits-train.safetensors" \
        --global-batch 32 --batchnorm-samples 8 --seed 5 --steps 1000 --log log -v \
        >out 2>&1 3>&- &
    job=$!
    wait_until has_line log '^{"step":2,'
    for node in n1 n2; do
        for pid in $("$lab" at $node pgrep -x tasuki); do
            "$lab" at $node sh -c "
                tr '\\0' '\\n' </proc/$pid/environ | sed -n 's/^SLURM_LOCALID=//p' | tr '\\n' ' '
                cat /proc/$pid/task/*/status | sed -n 's/^Cpus_allowed_list:.//p' | sort -u |
                    tr '\\n' ' '"
            echo
        done | sort >$node
    done
    "$lab" run scancel --user=root
    wait $job || true
    cat out
    head n1 n2
}

@test "each rank has cores of its own, with all its threads" {
    look_at_ranks --ntasks-per-node=2
    [ "$(cat n1)" = $'0 0 \n1 1 ' ]
    [ "$(cat n2)" = "$(cat n1)" ]
    grep -q 'bound to CPUs 1$' out
}

@test "cores that the job was not given, and more than it asked for, stay free" {
    look_at_ranks --ntasks-per-node=1
    [ "$(cat n1)" = '0 0 ' ]
    [ "$(cat n2)" = "$(cat n1)" ]
    look_at_ranks --exclusive --ntasks-per-node=1
    [ "$(cat n1)" = '0 0-1 ' ]
    look_at_ranks --exclusive --ntasks-per-node=1 --cpus-per-task=1
    [ "$(cat n1)" = '0 0 ' ]
}

@test "what the user says of binding is srun's to do" {
    SLURM_CPU_BIND=map_cpu:1,0 look_at_ranks --ntasks-per-node=2
    [ "$(cat n1)" = $'0 1 \n1 0 ' ]
    ! grep 'bound to CPUs' out || false
}
