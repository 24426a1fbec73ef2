# SPDX-License-Identifier: MIT
# Nodes of unequal size, on two leaf switches: ranks are where the plan has them, and what stays
# idle is said.

bats_require_minimum_version 1.5.0
load common

setup_file() {
    export LAB_DIR=$BATS_FILE_TMPDIR/lab LAB_NODES=4 LAB_CPUS="8 4 4 2" LAB_GPUS="4 4 2 2" \
        LAB_LEAF=2
    start_slurm_lab
}

teardown_file() {
    stop_lab
}

setup() {
    begin_in_lab
}

data=(--data "$srcdir/etc/demo/digits-train.safetensors")

# Of eight ranks in four stages, each on a node, which are not in their order: "plan.json".
make_plan() {
    srun --mpi=pmix -N4 --ntasks-per-node=2 "$TASUKI" topo --measure=none --format json \
        -o topo.json
    "$TASUKI" profile "$demo/digits.onnx" "${data[@]}" --precision float64 --threads 1 -q \
        -o cost.json
    "$TASUKI" plan "$demo/digits.onnx" "${data[@]}" --precision float64 --cluster topo.json \
        --cost cost.json --global-batch 32 --batchnorm-samples 8 --micro-batches 2 --stages 4 \
        --replicas 2,2,2,2 -q -o made.json >made.txt
    python3 -c '
import json
plan = json.load(open("made.json"))
all = sorted(d for stage in plan["stages"] for row in stage["devices"] for d in row)
for stage, node in zip(plan["stages"], ("n3", "n4", "n1", "n2")):
    stage["devices"] = [[d for d in all if d.startswith(node + "/")]]
    print(*(d.split("/")[0] for row in stage["devices"] for d in row))
json.dump(plan, open("plan.json", "w"))' >stages
    cat stages
    [ "$(sort -u stages | wc -l)" -eq 4 ]
    tr ' ' '\n' <stages >order
    [ "$(sort order | uniq -c | awk '{ printf "%s ", $1 }')" = "2 2 2 2 " ]
    [ "$(sort order)" != "$(cat order)" ]
}

# Nodes of ranks 0, 1, … as PMIx told them, a line each.
nodes_of() {
    grep -m1 '"event":"start"' "$1" |
        python3 -c 'import json, sys; print(*json.load(sys.stdin)["hosts"], sep="\n")'
}

# Each rank reports which stage it runs; that is the one that the plan has on its node.
ranks_are_where_the_plan_has_them() {
    local log=${1:-log} rank=0 node stage
    for node in $(nodes_of "$log"); do
        stage=$(grep '"event":"ranks"' "$log" | tail -n 1 | python3 -c "
import json, sys
print(json.load(sys.stdin)['ranks'][$rank]['stage'])")
        echo "rank $rank on $node: stage $stage"
        sed -n "$((stage + 1))p" stages | grep -qw "$node"
        rank=$((rank + 1))
    done
    [ $rank -eq 8 ]
}

@test "ranks take the places of the plan on their nodes, or come in its order, with mpirun's curve" {
    local train=(--steps 8 --seed 5 --report-every 0.2 --device cpu --log log)
    make_plan
    mpirun -n 8 "$TASUKI" train "${training[@]}" --micro-batches 2 --stages 4 --replicas 2,2,2,2 \
        --steps 8 --log alone -q
    export TASUKI_TEST_DELAY=1:20000
    # As srun orders them.
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "$TASUKI" train plan.json "${data[@]}" \
        "${train[@]}"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" != *"planning anew"* ]]
    [ "$(nodes_of log)" = $'n1\nn1\nn2\nn2\nn3\nn3\nn4\nn4' ]
    ranks_are_where_the_plan_has_them
    same_losses log alone
    # As the launcher does; each rank holds what PMIx tells of all against the plan.
    rm log
    run "$lab" run timeout -s KILL 240 salloc -Q -N4 --ntasks-per-node=2 "$TASUKI" train \
        plan.json "${data[@]}" "${train[@]}"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" != *"planning anew"* ]]
    [ "$(nodes_of log)" = "$(cat order)" ]
    ranks_are_where_the_plan_has_them
    same_losses log alone
}

@test "a plan that is submitted, and tasks of an array of it, have its order, with mpirun's curve" {
    local log id task names=(log-1 log-2 log)
    local train=("${data[@]}" --steps 8 --seed 5 --report-every 0.2 --device cpu --nodes 4
        --ntasks-per-node 2 --directory run)
    make_plan
    mpirun -n 8 "$TASUKI" train "${training[@]}" --micro-batches 2 --stages 4 --replicas 2,2,2,2 \
        --steps 8 --log alone -q
    export TASUKI_TEST_DELAY=1:20000
    id=$(submit plan.json "${train[@]}" -- --array=1-2)
    for task in "${id}_1" "${id}_2"; do wait_until ended "$task"; done
    tail -n 30 run/job-"$id"_*.out
    rm run/job.sh run/job.conf
    id=$(submit plan.json "${train[@]}")
    wait_until ended "$id"
    cat run/job-"$id".out
    for log in "${names[@]/#/run/}"; do
        [ "$(nodes_of "$log.jsonl")" = "$(cat order)" ]
        ranks_are_where_the_plan_has_them "$log.jsonl"
        same_losses "$log.jsonl" alone
    done
    run ! grep 'planning anew' run/job-*.out
}

allocate_gpus() {
    "$lab" run timeout -s KILL 120 salloc -Q -w n3,n4 --exclusive --gpus-per-node=2 \
        env LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" "$TASUKI" train "$@"
}

# take_gpus STEPS ADDRESS...: stand-ins on each node, $model and $train, what these cost in "cost.json", and
# the curve of one CPU in "cpu".
take_gpus() {
    model=$srcdir/tests/data/model/mlp/model.onnx
    train=(--data "${model%/*}/train.safetensors" --optimizer sgd --threads 1 --steps "$1" --lr 0.03
        --cost cost.json --global-batch 8)
    shift
    use_stand_in
    export TASUKI_NVML=$builddir/tests/.libs/fake_nvml.so
    printf 'gpu %s\n' "$@" >machine
    "$TASUKI" profile "$model" "${train[@]:0:4}" --batch-size 2,8 -q -o cost.json
    "$TASUKI" train "$model" "${train[@]}" --stages 1 --device cpu --log cpu -q
}

# Four stages, neither in the order of the nodes nor in that of a node's GPUs. In float32, which the CPU
# sums in another order.
@test "ranks come in the order of a plan of GPUs, and each stage is on the GPU that the plan has for it" {
    local model train places=(n4/gpu1 n3/gpu1 n4/gpu0 n3/gpu0)
    take_gpus 6 0000:1b:00.0 0000:3d:00.0
    allocate_gpus "$model" "${train[@]}" --micro-batches 2 --device cuda --stages 4 \
        --replicas 1,1,1,1 --schedule 1f1b --log made
    python3 -c '
import json, sys
plan = json.loads(open("made").readline())["plan"]
for stage, device in zip(plan["stages"], sys.argv[1:]):
    stage["devices"] = [[device]]
json.dump(plan, open("plan.json", "w"))' "${places[@]}"
    run allocate_gpus plan.json "${train[@]:0:10}" --device cuda --log log
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" != *"planning anew"* ]]
    python3 -c '
import json, sys
lines = [json.loads(line) for line in open("log")]
start = next(l for l in lines if l.get("event") == "start")
ranks = next(l for l in lines if l.get("event") == "end")["ranks"]
print(start["hosts"], start["drives"], [rank["stage"] for rank in ranks])
assert start["hosts"] == ["n4", "n3", "n4", "n3"]
assert sorted(start["drives"]) == sorted(sys.argv[1:])
for host, device, rank in zip(start["hosts"], start["drives"], ranks):
    assert device.startswith(host + "/") and sys.argv[1 + rank["stage"]] == device
' "${places[@]}"
    same_losses log cpu 1e-5
}

# Where nothing is said of tasks, or as many as there are GPUs. The nodes have four of these, or two.
@test "nodes with more GPUs get more ranks, and the curve is that of one CPU" {
    local model train tasks
    take_gpus 6 0000:1b:00.0 0000:3d:00.0 0000:5e:00.0 0000:7f:00.0
    for tasks in '' --ntasks=6; do
        run "$lab" run timeout -s KILL 120 salloc -Q -w n1,n3 --exclusive --gpus=6 $tasks \
            env LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" "$TASUKI" train "$model" \
            "${train[@]}" --device cuda --stages 1 --log log
        echo "$output"
        [ "$status" -eq 0 ]
        [[ "$output" == *"2 nodes, 6 ranks, one for each GPU"* && "$output" != *idle* ]]
        [ "$(nodes_of log | sort | uniq -c | awk '{ printf "%s:%s ", $2, $1 }')" = "n1:4 n3:2 " ]
        same_losses log cpu 1e-5
    done
}

# A GPU is free when the process that had it is gone; the driver sees to that.
@test "when a rank with a GPU is killed the others leave theirs, and the next step has the same GPUs" {
    local model train before=()
    take_gpus 12 0000:1b:00.0 0000:3d:00.0
    export TASUKI_TEST_DELAY=1:30000
    allocate_gpus "$model" "${train[@]}" --micro-batches 2 --stages 4 --replicas 1,1,1,1 \
        --schedule 1f1b --device cuda --checkpoint c --checkpoint-every 4 --log log >out 2>&1 3>&- &
    job=$!
    wait_until has_line log '^{"step":1,'
    # Ranks, not the child by which one of them asks Slurm.
    mapfile -t before < <("$lab" run sh -c 'for process in $(pgrep -x tasuki); do
        ! grep -qsz ^PMIX_RANK= /proc/$process/environ ||
            pgrep -x tasuki | grep -qx "$(ps -o ppid= -p $process | tr -d " ")" || echo $process
    done')
    [ ${#before[@]} -eq 4 ]
    wait_until has_line log '^{"step":6,'
    "$lab" run kill -KILL "${before[3]}"
    PATIENCE=30 wait_until none_runs "${before[@]}"
    ends_with 0
    grep -q 'going on from step-0000000[48]' out
    [ "$(grep -c '"drives":' log)" -eq 2 ]
    [ "$(sed -n 's/.*"drives":\(\[[^]]*\]\).*/\1/p' log | sort -u | wc -l)" -eq 1 ]
    last_of_each_step log >once
    same_losses once cpu 1e-5
}

none_runs() {
    local pid
    for pid; do ! "$lab" run kill -0 "$pid" 2>/dev/null || return 1; done
}

@test "what larger nodes have beyond what ranks of the smallest take stays idle, and that is said" {
    local allocate=("$lab" run timeout -s KILL 100 salloc -Q -N4 --exclusive)
    # Ranks share the cores of their node, however many they are.
    run "${allocate[@]}" "$TASUKI" train "${training[@]}" --steps 2 --stages 1 --device cpu
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" != *idle* ]]
    run "${allocate[@]}" --cpus-per-task=2 "$TASUKI" train "${training[@]}" --steps 2 --stages 1 \
        --device cpu
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"warning: nodes are of unequal size, and each gets 1 rank: 10 of 18 CPUs stay idle"* ]]
    [ "$(grep -c 'stay idle' <<<"$output")" -eq 1 ]
}
