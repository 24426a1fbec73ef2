# SPDX-License-Identifier: MIT
# Ranks on the virtual nodes of a real Slurm.

load common

setup_file() {
    export LAB_DIR=$BATS_FILE_TMPDIR/lab LAB_NODES=4 LAB_CPUS=4
    start_lab "$(no_mpi)"
}

teardown_file() {
    stop_lab
}

setup() {
    [ -z "$WHY_NOT" ] || skip "$WHY_NOT"
    mpi_environment
}

@test "comm works over 4 nodes of 2 tasks" {
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "$comm_check"
    all_passed 8
}

@test "each rank knows the nodes of all" {
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "$comm_check" hosts
    echo "$output"
    [ "$status" -eq 0 ]
    for rank in 0 1 2 3 4 5 6 7; do
        grep -qx "rank $rank: n$((rank / 2 + 1))" <<<"$output"
    done
}

# Slurm 22.05 by its tree: no PMIx fence is a barrier, and what others put is not found. The
# fences of MPI_Init itself then fail, too, and crash it now and then: those runs do not count.
@test "exchange, fence and agreement hold where Slurm's PMIx fences are broken" {
    local try
    export SLURM_PMIX_FENCE=tree
    for check in exchange fence agreement; do
        for try in 1 2 3 4 5; do
            run srun --mpi=pmix -N4 --ntasks-per-node=2 "$comm_check" $check
            echo "$output"
            [[ "$output" != *"ranks, mpi,"* ]] || break
        done
        [ "$status" -eq 0 ]
        [[ "$output" == *"$check: ok"* ]]
    done
}

@test "comm works with the fences that Slurm chooses by itself" {
    SLURM_PMIX_FENCE=mixed run srun --mpi=pmix -N4 --ntasks-per-node=2 "$comm_check"
    all_passed 8
}

@test "comm works over TCP where no send ends before its receive has begun" {
    TASUKI_RENDEZVOUS=1 OMPI_MCA_btl_tcp_eager_limit=80 OMPI_MCA_btl_vader_eager_limit=80 \
        run srun --mpi=pmix -N4 --ntasks-per-node=2 "$comm_check"
    all_passed 8
}

@test "one task needs no PMIx" {
    run srun -N1 -n1 "$comm_check"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"1 ranks, self"* ]]
}

# KillOnBadExit ends the tasks that are not through yet: srun then says 143 or 2.
refused_by_tasks() {
    [ "$status" -eq 2 ] || [ "$status" -eq 143 ]
    [[ "$output" == *"Exited with exit code 2"* ]]
}

@test "srun without PMIx gets the line to use, once" {
    run srun -N4 --ntasks-per-node=2 "$TASUKI" topo
    echo "$output"
    refused_by_tasks
    [ "$(grep -c 'use: srun --mpi=pmix -N4 --ntasks-per-node=2 tasuki' <<<"$output")" -eq 1 ]
}

@test "srun with a PMI that this MPI does not speak gets the line to use, once" {
    run srun --mpi=pmi2 -N2 --ntasks-per-node=2 "$TASUKI" topo
    echo "$output"
    refused_by_tasks
    [ "$(grep -c 'use: srun --mpi=pmix -N2 --ntasks-per-node=2 tasuki' <<<"$output")" -eq 1 ]
}

@test "when a rank dies, Slurm ends the others" {
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "$comm_check" die 3 60
    echo "$output"
    [ "$status" -ne 0 ]
    [ "$status" -ne 124 ]
}

# The deadline is the default, 600 seconds: what ends them is that they notice.
@test "when a rank dies and Slurm does nothing, the others notice, and one says which" {
    local victim
    for victim in 3 0; do
        run srun -K0 --mpi=pmix -N4 --ntasks-per-node=1 "$comm_check" die $victim 600
        echo "$output"
        [ "$status" -ne 0 ]
        [ "$status" -ne 124 ]
        [ "$(grep -c "rank $victim (n$((victim + 1))) is lost: its process has ended\$" \
            <<<"$output")" -eq 1 ]
        [ "$(grep -c '^comm_check: rank' <<<"$output")" -eq 1 ]
    done
}

@test "when all ranks of a node die at once, the others name the lowest and count the rest" {
    local code=0 end=$((SECONDS + 60)) step
    "$lab" run timeout 300 srun -K0 --mpi=pmix -N4 --ntasks-per-node=2 \
        "$comm_check" wait 600 >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
    step=$!
    until grep -q waiting "$BATS_TEST_TMPDIR/out"; do
        [ $SECONDS -lt $end ]
        sleep 0.05
    done
    "$lab" at n1 pkill -9 -x comm_check
    wait $step || code=$?
    cat "$BATS_TEST_TMPDIR/out"
    [ $code -ne 0 ]
    [ $code -ne 124 ]
    [ "$(grep -c 'rank 0 (n1) is lost: its process has ended, and 1 more$' \
        "$BATS_TEST_TMPDIR/out")" -eq 1 ]
    [ "$(grep -c '^comm_check: rank' "$BATS_TEST_TMPDIR/out")" -eq 1 ]
}

@test "when a rank dies that nobody can watch, the others end by their deadline" {
    TASUKI_WATCH=no run srun -K0 --mpi=pmix -N4 --ntasks-per-node=1 "$comm_check" die 3 2
    echo "$output"
    [ "$status" -ne 0 ]
    [ "$status" -ne 124 ]
    [[ "$output" == *"from rank 3 (n4): nothing moved for 2 seconds"* ]]
}

@test "topo under srun prints the nodes of the allocation" {
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "$TASUKI" topo
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"this allocation: 4 nodes, 8 devices"* ]]
    [[ "$output" == *"4 nodes alike: n1, n2, n3, n4; the first of them:"* ]]
    [[ "$output" == *"rank 5     n3 "*" CPUs "*"GPUs none"* ]]
    [[ "$output" == *"(measured)"* ]]
    [[ "$output" == *"no switches known: topology/none (SLURM_TOPOLOGY_ADDR)"* ]]
    [ ! -e "$TASUKI_PKGLIBDIR/tasuki-slurm.so" ] || {
        run "$lab" run "$TASUKI" topo --partition main
        echo "$output"
        [[ "$output" == *"no switches known: libslurm: topology/"* ]]
    }
}

@test "topo --check under srun finds nothing on virtual nodes of one machine" {
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "$TASUKI" topo --check --measure none
    echo "$output"
    [ "$status" -eq 0 ]
    # In a container the versions of PMIx follow.
    [[ "$output" == "0 problems on 0 of 4 nodes"* ]]
}

@test "the topology of an allocation can be planned with elsewhere" {
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "$TASUKI" topo --format json \
        -o "$BATS_TEST_TMPDIR/topo.json"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '"id": "n[1-4]/cpu[01]"' "$BATS_TEST_TMPDIR/topo.json")" -eq 8 ]
}

@test "training gives the same numbers under srun, under mpirun and alone" {
    local demo=$srcdir/etc/demo
    local train=("$TASUKI" train "$demo/digits.onnx" --data "$demo/digits-train.safetensors"
        --precision float64 --global-batch 32 --batchnorm-samples 8 --steps 6 --seed 5
        --micro-batches 2 --no-shuffle)
    local pins=(--stages 4 --replicas 2,2,2,2)
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "${train[@]}" "${pins[@]}" \
        --log "$BATS_TEST_TMPDIR/srun"
    echo "$output"
    [ "$status" -eq 0 ]
    run timeout 300 mpirun -n 8 "${train[@]}" "${pins[@]}" --log "$BATS_TEST_TMPDIR/mpirun"
    echo "$output"
    [ "$status" -eq 0 ]
    run timeout 300 "${train[@]}" --log "$BATS_TEST_TMPDIR/alone"
    echo "$output"
    [ "$status" -eq 0 ]
    same_losses "$BATS_TEST_TMPDIR/srun" "$BATS_TEST_TMPDIR/mpirun"
    same_losses "$BATS_TEST_TMPDIR/srun" "$BATS_TEST_TMPDIR/alone"
}

# Two ranks of each node read: one of them copies. Then only those of the first and the last stage
# read, each another file.
@test "each node stages what its ranks read, once" {
    local demo=$srcdir/etc/demo dir=$BATS_TEST_TMPDIR node size
    local data=$demo/digits-train.safetensors
    local train=("$TASUKI" train "$demo/digits.onnx" --precision float64 --global-batch 32
        --batchnorm-samples 4 --steps 40 --seed 5 --deterministic --no-shuffle)
    mkdir "$dir/disk"
    export TASUKI_TEST_DELAY=1:20000
    size=$(stat -c %s "$data")
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "${train[@]}" --stages 1 --replicas 8 \
        --data "$data" --stage-to "$dir/disk" --keep-staged --log "$dir/log"
    echo "$output"
    [ "$status" -eq 0 ]
    grep '"event":"staged"' "$dir/log"
    grep -q "\"nodes\":4,\"bytes\":$((4 * size)),\"copied\":$((4 * size))," "$dir/log"
    [ "$(ls "$dir/disk" | wc -l)" -eq 4 ]
    for node in n1 n2 n3 n4; do
        [ "$(ls -A "$dir/disk/tasuki-$(id -u)-$node-0" | wc -l)" -eq 1 ]
        cmp "$data" "$dir/disk/tasuki-$(id -u)-$node-0/"*
    done
    rm -r "$dir/disk"/*

    python3 "$srcdir/tests/cli/make-data.py" npy "$data" "$dir/arrays"
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "${train[@]}" --stages 4 --replicas 2,2,2,2 \
        --micro-batches 2 --data "$dir/arrays" --stage-to "$dir/disk" --keep-staged \
        --log "$dir/log"
    echo "$output"
    [ "$status" -eq 0 ]
    grep '"event":"staged"' "$dir/log"
    ls -lR "$dir/disk"
    # Images go where the first stage is, labels where the last is: on the plan's nodes.
    grep -m1 '"event":"start"' "$dir/log" | python3 -c '
import json, os, sys
stages = json.load(sys.stdin)["plan"]["stages"]
nodes = [{d.split("/")[0] for row in s["devices"] for d in row} for s in (stages[0], stages[-1])]
bytes = sum(len(n) * os.path.getsize(f) for n, f in zip(nodes, sys.argv[1:]))
print(f"\"nodes\":{len(set.union(*nodes))},\"bytes\":{bytes},\"copied\":{bytes},")
print(len(set.union(*nodes)))
print(sum(map(len, nodes)))' "$dir/arrays/image.npy" "$dir/arrays/label.npy" >"$dir/expected"
    cat "$dir/expected"
    grep -q "$(head -1 "$dir/expected")" "$dir/log"
    [ "$(ls "$dir/disk" | wc -l)" -eq "$(sed -n 2p "$dir/expected")" ]
    [ "$(ls "$dir/disk"/*/* | wc -l)" -eq "$(tail -1 "$dir/expected")" ]
}

# Tasuki on four nodes in the background, with these options: $step, which prints to the file
# "out". Until the file $1 has a line like $2.
begin_step() {
    "$lab" run timeout 400 srun -K0 --mpi=pmix -N4 --ntasks-per-node=1 "$TASUKI" "$@" \
        >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
    step=$!
}

start_until() {
    local file=$BATS_TEST_TMPDIR/$1 line=$2 end=$((SECONDS + 300))
    shift 2
    begin_step "$@"
    until grep -qs "$line" "$file"; do
        [ $SECONDS -lt $end ]
        sleep 0.01
    done
}

# A training that goes on for ever.
demo_training=("$srcdir/etc/demo/digits.onnx" --data "$srcdir/etc/demo/digits-train.safetensors"
    --global-batch 32 --batchnorm-samples 8 --steps 1000000)

# The step ends by itself.
ends_with() {
    local code=0
    wait $step || code=$?
    cat "$BATS_TEST_TMPDIR/out"
    [ $code -eq "$1" ]
}

# With one error line that says this.
ends_with_one_error() {
    ends_with "$1"
    [ "$(grep -c 'tasuki: .*error:' "$BATS_TEST_TMPDIR/out")" -eq 1 ]
    grep -q "$2" "$BATS_TEST_TMPDIR/out"
}

# srun gives the highest code of its tasks, the victim's; that of the others is in its talk.
@test "when a rank of a training dies, the others end, and the lowest says which it was" {
    local step victim signal
    for victim in 4:KILL 1:SEGV 3:ABRT; do
        signal=${victim#*:}
        victim=${victim%:*}
        rm -f "$BATS_TEST_TMPDIR/log"
        start_until log '^{"step":3' train "${demo_training[@]}" --stages 4 \
            --replicas 1,1,1,1 --log "$BATS_TEST_TMPDIR/log"
        "$lab" at n$victim pkill -$signal -x tasuki
        ends_with_one_error $((128 + $(kill -l $signal))) \
            "error: rank $((victim - 1)) (n$victim) is lost: its process has ended\$"
        [ -z "$(grep 'task [0-9]*: Broken pipe' "$BATS_TEST_TMPDIR/out")" ]
        grep -q 'Exited with exit code 1$' "$BATS_TEST_TMPDIR/out"
    done
}

# In planning: rank 0 measures, the others wait to hear whether it failed.
@test "when a rank dies before the first step, the others end and say which it was" {
    local step
    start_until out '^tasuki: loss: ' train "${demo_training[@]}" --no-cache
    "$lab" at n1 pkill -9 -x tasuki
    ends_with_one_error 137 'error: rank 0 (n1) is lost: its process has ended$'
}

no_ranks() {
    ! "$lab" run pgrep -x tasuki >/dev/null || false
}

# Slurm ends nobody here (-K0): the stopped one leaves by itself, as the others do.
@test "a rank that is stopped is named with its node and its instruction, and all leave" {
    local step out=$BATS_TEST_TMPDIR/out log=$BATS_TEST_TMPDIR/log
    start_until log '^{"step":3' train "${demo_training[@]}" --stages 4 --replicas 1,1,1,1 \
        --deadline 5 --log "$log"
    sleep 4.5       # two beats
    "$lab" at n3 pkill -STOP -x tasuki
    wait_until no_ranks
    ends_with 1
    [ "$(grep -cE "error: nothing moved for 5 seconds; $(silent_rank 2 n3 2); rank [013] \(n[124]\) waits in $at_work\$" "$out")" -eq 1 ]
    [ "$(grep -cE "error: rank 2: silent for [0-9]+ s, ${at_work/stage \[0-9\]+/stage 2} before\$" "$out")" -eq 1 ]
    [ "$(grep -cE "error: rank [013]: $at_work, for [0-9]+ s\$" "$out")" -eq 3 ]
    tail -1 "$log" | grep -q '"event":"failed","error":"nothing moved.*"ranks":\[{"ranks":\[2\],"step":[0-9]*,"stage":2,"micro_batch":[0-9nul]*,"instruction":"[A-Za-z ]*","operation":"[a-z-]*",'
}

# The deadline is the default, 600 seconds.
@test "half a minute after a rank was stopped for good nobody is left, whatever Slurm does" {
    local step out=$BATS_TEST_TMPDIR/out log=$BATS_TEST_TMPDIR/log
    start_until log '^{"step":3' train "${demo_training[@]}" --stages 4 --replicas 1,1,1,1 \
        --log "$log"
    sleep 4.5       # two beats
    "$lab" at n2 pkill -STOP -x tasuki
    PATIENCE=30 wait_until no_ranks
    ends_with 1
    [ "$(grep -cE "error: a process does not run; $(silent_rank 1 n2 1); rank [023] \(n[134]\) waits in $at_work\$" "$out")" -eq 1 ]
}

@test "a rank that is slow is in the report of so many steps, with its node and its factor" {
    local step out=$BATS_TEST_TMPDIR/out log=$BATS_TEST_TMPDIR/log end
    start_until log '^{"step":3' train "${demo_training[@]}" --stages 1 --replicas 4 \
        --report-every 20steps --log "$log"
    end=$((SECONDS + 200))
    until [ "$(grep -c '^{"event":"stragglers".*{"rank":2,' "$log")" -ge 3 ]; do
        [ $SECONDS -lt $end ]
        "$lab" at n3 pkill -STOP -x tasuki
        sleep 0.3
        "$lab" at n3 pkill -CONT -x tasuki
        sleep 0.1
    done
    "$lab" run pkill -KILL -x tasuki
    wait $step || true
    cat "$out"
    grep '"stragglers"' "$log" | tail -3
    reports_of_steps 20 "$log"
    grep -q '^{"event":"stragglers","step":[0-9]*,"steps":20,.*{"rank":2,"node":"n3","stage":0,"factor":[0-9.]*,"beyond":"stage",' "$log"
    grep 'rank 2 (n3) is slow: .* times as long as the median of its stage$' "$out"
}

# Sockets that a process of Tasuki listens with, at an address of its node: MPI's are at any.
listeners_of() {
    "$lab" at "$1" sh -c '
        for pid in $(pgrep -x tasuki); do
            for fd in /proc/$pid/fd/*; do readlink $fd; done
        done | sed -n "s/^socket:.\([0-9]*\).$/\1/p" >/run/node/own
        cat /proc/net/tcp /proc/net/tcp6 | awk '"'"'$4 == "0A" && $2 !~ /^0+:/ { print $10, $2 }'"'"' |
            grep -wFf /run/node/own || true'
}

@test "nothing of it listens, neither while a run starts nor when training has begun" {
    local step log=$BATS_TEST_TMPDIR/log node looks=0
    run grep -rn '\<listen *(' "$srcdir"/{src,topology,kernels,scheduler} --include='*.[ch]'
    [ $status -eq 1 ]
    begin_step train "${demo_training[@]}" --stages 4 --replicas 1,1,1,1 --log "$log"
    until grep -q '^{"step":1,' "$log" 2>/dev/null; do
        kill -0 "$step"
        for node in n1 n2 n3 n4; do
            run listeners_of $node
            [ -z "$output" ] || { echo "$node: $output"; false; }
        done
        looks=$((looks + 1))
    done
    echo "looked $looks times"
    [ $looks -gt 0 ]
    "$lab" at n1 cat /proc/net/tcp
    for node in n1 n2 n3 n4; do
        [ -n "$("$lab" at $node pgrep -x tasuki)" ]
        run listeners_of $node
        echo "$node: $output"
        [ -z "$output" ]
    done
    "$lab" at n4 pkill -9 -x tasuki
    ends_with_one_error 137 'error: rank 3 (n4) is lost: its process has ended$'
}

@test "when a rank fails by itself, it says why, and the others end in silence" {
    local victim
    for victim in 3 0; do
        run srun -K0 --mpi=pmix -N4 --ntasks-per-node=1 "$comm_check" fail $victim 600
        echo "$output"
        [ "$status" -eq 1 ]
        [ "$(grep -c '^comm_check: rank' <<<"$output")" -eq 1 ]
        [[ "$output" == *"rank $victim (n$((victim + 1))): a trouble of its own"* ]]
    done
}

@test "comm works over tasks that are several ranks each, and all of one that dies are named" {
    local victim first
    run srun --mpi=pmix -N4 --ntasks-per-node=1 "$comm_check" -2
    all_passed 8 hybrid
    for victim in 0 1 7; do
        first=$((victim / 2 * 2))
        run srun -K0 --mpi=pmix -N4 --ntasks-per-node=1 "$comm_check" -2 die $victim 600
        echo "$output"
        [ "$(grep -c '^comm_check: rank' <<<"$output")" -eq 1 ]
        [[ "$output" == *"ranks $first-$((first + 1)) (n$((victim / 2 + 1))) are lost: "* ]]
        run srun -K0 --mpi=pmix -N4 --ntasks-per-node=1 "$comm_check" -2 fail $victim 600
        echo "$output"
        [ "$status" -eq 1 ]
        [ "$(grep -c '^comm_check: rank' <<<"$output")" -eq 1 ]
        [[ "$output" == *"rank $victim (n$((victim / 2 + 1))): a trouble of its own"* ]]
    done
}

@test "topo --measure=full under srun measures all classes of pairs" {
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "$TASUKI" topo --measure=full
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^  same node  *4 ' <<<"$output")" -eq 1 ]
    [[ "$output" == *": 2 transfers at once have "* ]]
    # The network between machines, of which there is one, is still a table's.
    [ "$(grep -c '    [a-z].* between its parts.*(measured)' <<<"$output")" -ge 2 ]
    [ "$(grep -c '    [a-z].* between its parts.*(table); ' <<<"$output")" -eq 0 ]
}

@test "when a rank dies while links are measured, the others end and say which it was" {
    local step
    start_until out '^tasuki: measure ' topo --measure=full
    "$lab" at n3 pkill -9 -x tasuki
    ends_with_one_error 137 'error: .*rank 2 (n3) is lost: its process has ended$'
}

@test "plain mpirun spans the nodes by the lab's rsh agent" {
    "$lab" hosts 2 >"$BATS_TEST_TMPDIR/hosts"
    export PRTE_MCA_plm_ssh_agent="$lab rsh" PRTE_MCA_rmaps_default_mapping_policy=slot
    run "$lab" run timeout 300 mpirun -mca plm rsh -mca plm_rsh_agent "$lab rsh" \
        -mca ras ^slurm --hostfile "$BATS_TEST_TMPDIR/hosts" -n 8 "$comm_check" hosts
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"rank 7: n4"* ]]
}

@test "a node that loses its power ends the step" {
    "$lab" run timeout 300 srun --mpi=pmix -N4 --ntasks-per-node=1 \
        "$comm_check" wait 60 >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
    local step=$! code=0 end=$((SECONDS + 30))
    until grep -q waiting "$BATS_TEST_TMPDIR/out"; do
        [ $SECONDS -lt $end ]
        sleep 0.05
    done
    "$lab" off n4
    "$lab" run scontrol update nodename=n4 state=down reason=test
    wait $step || code=$?
    cat "$BATS_TEST_TMPDIR/out"
    [ $code -ne 0 ]
    [ $code -ne 124 ]
    "$lab" on n4
}
