# SPDX-License-Identifier: MIT
# Which nodes of an allocation the launcher starts ranks on: those that answer, and are well.
# Files of one node alone are changed by mounts in its namespace.

load common

setup_file() {
    export LAB_DIR=$BATS_FILE_TMPDIR/lab LAB_NODES=4 LAB_CPUS=4 LAB_GPUS=2
    export LAB_EXTRA='SlurmdTimeout=300
JobRequeue=1'
    start_slurm_lab
}

teardown_file() {
    stop_lab
}

setup() {
    begin_in_lab --steps 2 --device cpu
    PATIENCE=60
    mounts=() group=
}

teardown() {
    local entry
    [ -z "$WHY_NOT" ] || return 0
    "$lab" run scancel --user=root
    [ -z "$group" ] || "$lab" at n2 rmdir "$group"
    for entry in "${mounts[@]}"; do
        "$lab" at "${entry%%:*}" umount "${entry#*:}"
    done
    "$lab" run ip link set to-n2 up
    "$lab" run scontrol update nodename=n[1-4] state=resume 2>/dev/null || true
    wait_until all_idle
}

# Train in an allocation of all nodes, with one rank on each: allocate TRAINING...
allocate() {
    run "$lab" run timeout -s KILL 200 salloc -Q -N4 --ntasks-per-node=1 --no-kill \
        "$TASUKI" train "${training[@]}" "$@"
    echo "$output"
}

# The one that is left out, and why; the rest train.
only_left_out() {
    [ "$status" -eq 0 ]
    [ "$(grep -c 'is left out' <<<"$output")" -eq 1 ]
    [[ "$output" == *"node $1 is left out: "$2* ]]
    [[ "$output" == *"3 nodes, 1 rank on each"* ]]
}

# On node $1 file $2 is $3: put_over NODE FILE FILE
put_over() {
    "$lab" at "$1" mount --bind "$3" "$2"
    mounts+=("$1:$2")
}

@test "nodes that are well are all used, and nothing is said" {
    allocate
    [ "$status" -eq 0 ]
    [[ "$output" != *"is left out"* ]]
    [[ "$output" == *"4 nodes, 1 rank on each"* ]]
}

@test "a node with fewer CPUs than Slurm and its peers say is left out" {
    echo 0 >online
    put_over n3 /sys/devices/system/cpu/online "$PWD/online"
    [ "$(nproc --all)" -gt 1 ] || skip "one core is all there is"
    allocate
    only_left_out n3 "it has 1 CPUs, other nodes of its kind "
}

@test "a node with less memory than Slurm and its peers say is left out" {
    sed 's/^MemTotal:.*/MemTotal: 4194304 kB/' /proc/meminfo >meminfo
    put_over n2 /proc/meminfo "$PWD/meminfo"
    allocate
    only_left_out n2 "it has 4.0 GiB of memory, other nodes of its kind "
}

# Of one that cannot be written to Slurm itself takes the place of, with /tmp.
@test "a node whose temporary folder is full is left out" {
    export TMPDIR=$BATS_TEST_TMPDIR/temporary
    mkdir temporary
    "$lab" at n4 mount -t tmpfs -o size=1m none "$TMPDIR"
    mounts+=("n4:$TMPDIR")
    allocate
    only_left_out n4 "$TMPDIR: less than 16 MiB are free"
}

@test "a node that lacks the data, or where checkpoints cannot be written, is left out" {
    mkdir data other
    cp "$demo/digits-train.safetensors" data
    put_over n1 "$PWD/data" "$PWD/other"
    training[2]=$PWD/data/digits-train.safetensors
    allocate
    only_left_out n1 "$PWD/data/digits-train.safetensors: No such file or directory; other"
    mkdir c
    "$lab" at n2 mount -t tmpfs -o ro none "$PWD/c"
    mounts+=("n2:$PWD/c")
    training[2]=$demo/digits-train.safetensors
    allocate --checkpoint c
    only_left_out n2 "$PWD/c: Read-only file system; other nodes can write there"
}

@test "a node that does not answer is left out, in bounded time, before Slurm has noticed" {
    local start=$SECONDS
    "$lab" run ip link set to-n2 down
    allocate
    only_left_out n2 "no process can be started there: "
    [ $((SECONDS - start)) -lt 120 ]
}

@test "a node that is drained is left out, where the others suffice" {
    "$lab" run timeout 100 salloc -Q -N4 --ntasks-per-node=1 --no-kill sh -c '
        scontrol update nodename=n3 state=drain reason="bad fan"
        "$@"' sh "$TASUKI" train "${training[@]}" >out 2>&1
    status=0 output=$(<out)
    echo "$output"
    only_left_out n3 "Slurm says "*"+drain, bad fan"
    "$lab" run scontrol update nodename=n3 state=resume
    "$lab" run timeout 100 salloc -Q -N4 --ntasks-per-node=1 --no-kill sh -c '
        scontrol update nodename=n3 state=drain reason="bad fan"
        "$@"' sh "$TASUKI" train "${training[@]}" --stages 4 --replicas 1,1,1,1 >out 2>&1
    cat out
    grep -q 'node n3 is used, since the others are too few: Slurm says .*, bad fan' out
    grep -q '4 nodes, 1 rank on each' out
}

@test "a node whose driver shows fewer GPUs than the job has there is left out" {
    local i
    for i in 1 2; do echo "gpu 0000:${i}0:00.0"; done >nvml.txt
    head -n 1 nvml.txt >half.txt
    export TASUKI_NVML=$builddir/tests/.libs/fake_nvml.so TASUKI_FAKE_NVML=$PWD/nvml.txt
    [ -e "$TASUKI_NVML" ] || skip "fake_nvml is not built"
    put_over n4 "$PWD/nvml.txt" "$PWD/half.txt"
    run "$lab" run timeout -s KILL 200 salloc -Q -N4 --ntasks-per-node=2 --gres=gpu:2 --no-kill \
        "$TASUKI" train "$demo/digits.onnx" --data "$demo/digits-train.safetensors" \
        --global-batch 32 --batchnorm-samples 8 --steps 2
    echo "$output"
    [[ "$output" == *"node n4 is left out: the driver shows 1 of the 2 GPUs that the job has there"* ]]
    [[ "$output" == *"3 nodes, 2 ranks on each"* ]]
    allocate
    [ "$status" -eq 0 ]
    [[ "$output" != *"is left out"* ]]
}

# Rank 0, on another node, asks the one that is left there; then the launcher asks each node.
@test "of a rank that the kernel ends for want of memory its node says so, and restarts have an end" {
    local folder=/sys/fs/cgroup/memory/tasuki-test-$$ job code=0 pids
    "$lab" at n2 sh -c 'mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/memory &&
        mount -t cgroup -o memory none /sys/fs/cgroup/memory && "$@"' sh "$starve" make "$folder" 128 ||
        skip "no control group of v1 can be made here"
    mounts+=(n2:/sys/fs/cgroup/memory n2:/sys/fs/cgroup)
    group=$folder
    TASUKI_TEST_DELAY=1:30000 "$lab" run timeout -s KILL 200 salloc -Q -N2 --ntasks-per-node=2 \
        --no-kill "$TASUKI" train "${training[@]}" --replicas 4 --steps 100000 --checkpoint c \
        --max-restarts 0 --log log >out 2>&1 3>&- &
    job=$!
    wait_until has_line log '^{"step":2,'
    pids=$("$lab" at n2 pgrep -x tasuki)
    "$lab" at n2 "$starve" take "$group" $pids
    "$lab" at n2 "$starve" fill "$group" "${pids##*[^0-9]}"
    wait $job || code=$?
    cat out
    [ $code -eq 1 ]
    grep -q 'rank [23] (n2) is lost: its process has ended; the kernel of n2 has ended [12] process' out
    grep -q ' since the run started (limit of the control group: 0.125 GiB); the plan foresees ' out
    grep -q 'warning: the kernel of n2 has ended .* since the launcher last asked .* ask for more' out
    grep -q 'giving up: 0 restarts brought no new checkpoint' out
}

@test "where too few are left for what was asked, one error says so; a batch job is started again" {
    local id
    sed 's/^MemTotal:.*/MemTotal: 4194304 kB/' /proc/meminfo >meminfo
    put_over n2 /proc/meminfo "$PWD/meminfo"
    allocate --stages 2 --replicas 2,2
    [ "$status" -eq 3 ]
    [[ "$output" == *"the nodes that are left, 3, have 3 ranks, and --replicas wants 4"* ]]
    [ "$(grep -c error <<<"$output")" -eq 1 ]
    printf '#!/bin/sh\nexec "$@"\n' >job.sh
    id=$("$lab" run sbatch --parsable -N4 --ntasks-per-node=1 --requeue -o out job.sh \
        "$TASUKI" train "${training[@]}" --stages 2 --replicas 2,2)
    wait_until grep -qs "job $id: to be continued; Slurm is asked to start it again" out
    cat out
    grep -q 'to be requeued' out
    wait_until in_state "$id" PENDING
    [ "$(restarts "$id")" -eq 1 ]
    "$lab" at n2 umount /proc/meminfo
    mounts=()
    let_go_on "$id"
    wait_until in_state "$id" COMPLETED
    [ "$(restarts "$id")" -eq 1 ]
    # Where Slurm may not do that the code says it.
    put_over n2 /proc/meminfo "$PWD/meminfo"
    id=$("$lab" run sbatch --parsable -N4 --ntasks-per-node=1 --no-requeue -o out job.sh \
        "$TASUKI" train "${training[@]}" --stages 2 --replicas 2,2)
    wait_until in_state "$id" FAILED
    [ "$("$lab" run scontrol show job "$id" | sed -n 's/.*ExitCode=\([0-9]*\):.*/\1/p')" = 3 ]
}

@test "a plan that is to be kept ends the launcher where it has ranks on a bad node" {
    local data=(--data "$demo/digits-train.safetensors")
    srun --mpi=pmix -N4 --ntasks-per-node=1 "$TASUKI" topo --measure=none --format json \
        -o topo.json
    "$TASUKI" profile "$demo/digits.onnx" "${data[@]}" --precision float64 --threads 1 -q \
        -o cost.json
    "$TASUKI" plan "$demo/digits.onnx" "${data[@]}" --precision float64 --cluster topo.json \
        --cost cost.json --global-batch 32 --batchnorm-samples 8 --stages 4 \
        --replicas 1,1,1,1 -o plan.json
    sed 's/^MemTotal:.*/MemTotal: 4194304 kB/' /proc/meminfo >meminfo
    put_over n2 /proc/meminfo "$PWD/meminfo"
    training=(plan.json "${data[@]}" --steps 2 --device cpu)
    allocate --keep-plan
    [ "$status" -eq 3 ]
    [[ "$output" == *"plan.json has ranks on node n2, which is left out (--keep-plan)"* ]]
    allocate
    only_left_out n2 "it has 4.0 GiB of memory"
    [[ "$output" == *"planning anew"* ]]
}
