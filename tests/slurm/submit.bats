# SPDX-License-Identifier: MIT
# Jobs that "tasuki submit" hands to a real Slurm.

bats_require_minimum_version 1.5.0
load common

setup_file() {
    export LAB_DIR=$BATS_FILE_TMPDIR/lab LAB_NODES=3 LAB_CPUS=4 LAB_SOCKETS=2 LAB_GPUS=2
    export LAB_EXTRA='PartitionName=small Nodes=n[1-2] MaxNodes=2 MaxTime=30 State=UP
PartitionName=closed Nodes=n3 State=DRAIN'
    start_slurm_lab
}

teardown_file() {
    stop_lab
}

setup() {
    begin_in_lab --device cpu
}

# What a test cut off comes back, for those after it.
teardown() {
    [ -z "${cut:-}" ] || "$lab" run ip link set to-"$cut" up
}

@test "a submitted job trains on two nodes and ends; submit prints its number" {
    run --separate-stderr submit "${training[@]}" --steps 6 --nodes 2 \
        --ntasks-per-node 1 --time 10
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [[ "$output" =~ ^[0-9]+$ ]]
    wait_until ended "$output"
    cat digits-1/job-"$output".out digits-1/job.sh
    in_state "$output" COMPLETED
    "$lab" run "$TASUKI" watch "$output" --format json >seen.json
    grep -q '"step": *6' seen.json
    run "$lab" run "$TASUKI" watch 999
    [[ "$output" == *"job 999"* ]]
    [ "$(grep -c '^{"step"' digits-1/log.jsonl)" -eq 6 ]
    grep -q '"nodes": *2\|n2/' digits-1/log.jsonl
    [ -e digits-1/checkpoints/step-00000006 ]
}

@test "a job whose limit is near, and that is requeued, goes on twice, with the same curve" {
    local id
    "$TASUKI" train "${training[@]}" --steps 16 --log alone
    export TASUKI_TEST_DELAY=1:30000
    id=$(submit "${training[@]}" --steps 16 --stages 2 --replicas 1,1 --nodes 2 \
        --ntasks-per-node 1 --directory run)
    wait_until has_line run/log.jsonl '^{"step":3,'
    "$lab" run scancel -b -s USR1 "$id"     # as --signal does before the limit
    let_go_on "$id"
    wait_until has_line run/log.jsonl '^{"step":8,'
    "$lab" run scontrol requeue "$id"
    let_go_on "$id"
    wait_until ended "$id"
    cat run/job-"$id".out
    in_state "$id" COMPLETED
    [ "$(grep -c 'resuming from' run/job-"$id".out)" -eq 2 ]
    grep -q "job $id: to be continued; Slurm is asked" run/job-"$id".out
    same_losses run/log.jsonl alone
}

# The job "$id" on $1 nodes, of 16 slow steps or $2, has a checkpoint, and some steps more.
start_to_lose() {
    local steps=${2:-16}
    "$TASUKI" train "${training[@]}" --steps "$steps" --log alone
    export TASUKI_TEST_DELAY=1:${3:-30000}
    id=$(submit "${training[@]}" --steps "$steps" --stages 2 --replicas 1,1 --nodes "$1" \
        --ntasks-per-node 1 --directory run --checkpoint-every 4)
    wait_until has_line run/log.jsonl '^{"step":7,'
}

# It comes to its end, with the same curve, started again $1 times, after one loss, of node $2.
goes_on() {
    wait_until ended "$id"
    [ -z "${2:-}" ] || "$lab" on "$2"
    cat run/job-"$id".out
    in_state "$id" COMPLETED
    [ "$(restarts "$id")" -eq "$1" ]
    [ "$(grep -c 'resuming from' run/job-"$id".out)" -eq 1 ]
    last_of_each_step run/log.jsonl >once
    same_losses once alone
    wait_until all_idle
}

@test "a job that loses a node goes on without it, in its allocation, with the same curve" {
    start_to_lose 3
    "$lab" off n2
    goes_on 0 n2
    grep -q 'node n2 is left out' run/job-"$id".out
}

# The guard's process on n2, by what it was told.
guard() {
    "$lab" at n2 sh -c 'for process in /proc/[0-9]*; do
        grep -qs ^tasuki "$process/comm" && grep -qs TASUKI_GUARD= "$process/environ" &&
            echo "${process#/proc/}"
    done; true'
}

is_another_guard() {
    local now
    now=$(guard)
    [ -n "$now" ] && [ "$now" != "$1" ]
}

# Slurm keeps the job, without anybody to end it: the guard on n2 does, here the second one, which
# takes the place of one that is gone while the step runs.
@test "a job that loses the node of its script is started again, with the same curve" {
    local first
    start_to_lose 2 40 100000
    first=$(guard)
    [ "$(wc -w <<<"$first")" -eq 1 ]
    "$lab" at n2 kill -9 "$first"
    wait_until is_another_guard "$first"
    run ! has_line run/log.jsonl '^{"step":36,'
    "$lab" off n1
    wait_until in_state "$id" PENDING
    grep -q "node n1, on which the script of job $id ran, is lost" run/job-"$id".out
    let_go_on "$id"
    goes_on 1 n1
}

# Slurm is not told that the script has ended, and keeps the job likewise: the guard is still there.
# The node stays away while the job runs again: one that comes back just then has the job of before,
# and Slurm takes it out of service ("Duplicate jobid").
@test "a job whose script ends on a node that is cut off is started again, and ends" {
    local id
    "$TASUKI" train "${training[@]}" --steps 6 --log alone
    id=$(submit "${training[@]}" --steps 6 --stages 2 --replicas 1,1 --nodes 2 --ntasks-per-node 1 \
        --directory run -- --hold)
    "$lab" run scancel "$id"
    sed -i 's|^exec .*|(SLURM_TASK_PID=$BASHPID; &); touch over; until [ -e cut ]; do sleep 0.1; done|' \
        run/job.sh
    id=$("$lab" run sbatch --parsable run/job.sh)
    wait_until test -e over
    wait_until is_another_guard ''
    cut=n1
    "$lab" run ip link set to-n1 down
    touch cut
    wait_until in_state "$id" PENDING
    "$lab" run scontrol update jobid="$id" StartTime=now+2
    wait_until ended "$id"
    "$lab" run ip link set to-n1 up
    cat run/job-"$id".out
    grep -q "node n1, on which the script of job $id ran, is lost" run/job-"$id".out
    in_state "$id" COMPLETED
    [ "$(restarts "$id")" -eq 1 ]
    same_losses run/log.jsonl alone
    wait_until all_idle
}

@test "a job that has too few nodes left is started again, with the same curve" {
    start_to_lose 2
    "$lab" off n2
    "$lab" run scontrol update nodename=n2 state=down reason=test
    let_go_on "$id"
    goes_on 1 n2
}

@test "tasks of an array train side by side, each with files of its own" {
    local id task
    id=$(submit "${training[@]}" --steps 4 --nodes 1 --ntasks-per-node 1 --directory run \
        -- --array=1-2)
    for task in 1 2; do
        wait_until ended "${id}_$task"
        cat run/job-"${id}_$task".out
        [ "$(grep -c '^{"step"' run/log-$task.jsonl)" -eq 4 ]
        [ -e run/checkpoints-$task/step-00000004 ]
    done
    "$lab" run "$TASUKI" watch "${id}_2" --format json | grep -q '"step": *4'
    [ "$(ls -d run/*%* 2>/dev/null)" = "" ]
}

# What is not there; on a terminal it would be waited for.
watch_misses() {
    run "$lab" run "$TASUKI" watch "$1" --once
    echo "$1: $status $output"
    [ "$status" -ne 0 ]
}

@test "the log of a job that waits is waited for; tasks of an array that waits are to be named" {
    local id watch task
    id=$(submit "${training[@]}" --steps 4 --nodes 1 --ntasks-per-node 1 --directory run -- --hold)
    watch_misses "$id"
    [[ "$output" == *"error: $PWD/run/log.jsonl: No such file or directory" ]]
    if command -v script >/dev/null; then
        "$lab" run timeout 120 script -qefc "stty rows 24 cols 80; exec $TASUKI watch $id" screen \
            </dev/null >/dev/null 3>&- &
        watch=$!
        wait_until has_line screen 'waiting'
    fi
    "$lab" run scontrol release "$id"
    wait_until ended "$id"
    [ -z "$watch" ] || wait "$watch"
    [ -z "$watch" ] || grep -q 'done' screen
    id=$(submit "${training[@]}" --steps 4 --nodes 1 --ntasks-per-node 1 --directory array \
        -- --array=3-7:2,12%2 --hold)
    watch_misses "$id"
    [[ "$output" == *"job $id (pending) is an array, of which tasks 3,5,7,12 wait: name one of its \
tasks, such as ${id}_3" ]]
    for task in 5 12; do
        watch_misses "${id}_$task"
        [[ "$output" == *"error: $PWD/array/log-$task.jsonl: No such file or directory" ]]
    done
    watch_misses "${id}_4"
    [[ "$output" == *"job ${id}_4: Slurm knows of no such job" ]]
    "$lab" run scancel "$id"
    id=$(submit "${training[@]}" --steps 4 --nodes 1 --ntasks-per-node 1 --directory own \
        --log own-%j.jsonl -- --hold)
    watch_misses "$id"
    [[ "$output" == *"error: $PWD/own-$id.jsonl: No such file or directory" ]]
    "$lab" run scancel "$id"
}

# script NAME OPTIONS-OF-SBATCH... -- TRAINING...: a script that has nothing but the training, on one node.
script() {
    local options=(-o "$PWD/run/$1.out")
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    "$lab" run sbatch --parsable -N1 --ntasks-per-node=1 "${options[@]}" --wrap \
        "exec $(printf '%q ' "$TASUKI" train "${training[@]}" "$@")"
}

@test "tasks of an array have directories named by it and them, and a job that would write into one is refused" {
    local id task number second
    "$TASUKI" train "${training[@]}" --steps 40 --log alone -q
    mkdir run
    export TASUKI_TEST_DELAY=1:100000
    id=$(script job-%A_%a --array=1-2 -- --steps 40 --checkpoint run/%A_%a --log run/log-%a.jsonl)
    for task in 1 2; do wait_until has_line run/log-$task.jsonl '^{"step":2,'; done
    number=$("$lab" run squeue -h -j "${id}_1" -o %A)
    cp "run/${id}_1/.restarts" restarts
    second=$(script second -- --steps 4 --checkpoint "run/${id}_1")
    wait_until ended "$second"
    cat run/second.out
    in_state "$second" FAILED
    "$lab" run scontrol show job "$second" | grep -q ' ExitCode=1:0$'
    [ "$(grep -c '^tasuki: .*error: ' run/second.out)" -eq 1 ]
    grep -qE "error: run/${id}_1: another run writes checkpoints here: job $number \\(task 1 of array $id\\), process [0-9]+ on n[1-3], since " run/second.out
    in_state "${id}_1" RUNNING
    cmp restarts "run/${id}_1/.restarts"
    for task in 1 2; do
        wait_until ended "${id}_$task"
        cat run/job-"${id}_$task".out
        in_state "${id}_$task" COMPLETED
        same_losses run/log-$task.jsonl alone
        [ "$(cat "run/${id}_$task/latest")" = step-00000040 ]
        grep -q "\"array_task\":\"${id}_$task\"" run/log-$task.jsonl
    done
    [ "$(cd run && echo *_?)" = "${id}_1 ${id}_2" ]
    ! command -v python3 >/dev/null || python3 "$srcdir/tests/cli/log-lines.py" "$srcdir/man" run/log-?.jsonl
}

# A run on n3, which finds a lock of a run on n1 as old as this moment: it goes on, or is refused.
resume() {
    touch c/lock
    run srun -w n3 -N1 -n1 --mpi=pmix "$TASUKI" train "${training[@]}" --checkpoint c --resume \
        --steps 8
    echo "$output"
}

is_refused() {
    resume
    [ "$status" -ne 0 ]
    [[ "$output" == *"error: c: another run writes checkpoints here: job $1, process "*" on n1"* ]]
}

is_completing() {
    [ "$("$lab" run squeue -h -j "$1" -o %T)" = COMPLETING ]
}

# The lock of before, as if that job held it.
lock_of() {
    sed 's/"job": "[0-9]*"/"job": "'"$1"'"/' lock >c/lock
}

@test "the lock of a job that is over, as Slurm says, holds nobody up, on whatever nodes" {
    local id pending ending
    TASUKI_TEST_DELAY=1:100000 srun -w n1,n2 -N2 -n2 --mpi=pmix "$TASUKI" train "${training[@]}" \
        --steps 1000 --stages 2 --replicas 1,1 --checkpoint c --log log >out 2>&1 3>&- &
    wait_until has_line log '^{"step":2,'
    id=$(sed -n 's/.*"job": "\([0-9]*\)".*/\1/p' c/lock)
    is_refused "$id"
    # First the one whose lock it is; the other may leave by itself.
    "$lab" at n1 pkill -9 -x tasuki
    "$lab" at n2 pkill -9 -x tasuki || true
    wait $! || true
    cat out
    wait_until ended "$id"
    cp c/lock lock
    pending=$("$lab" run sbatch --parsable --hold -o /dev/null --wrap true)
    lock_of "$pending"
    is_refused "$pending"
    "$lab" run scancel "$pending"
    sed -i 's/"cluster": "lab"/"cluster": "far"/' c/lock
    is_refused "$pending"
    # It has ended, but for what Slurm cannot kill.
    ending=$("$lab" run sbatch --parsable -w n1 -o /dev/null --wrap 'sleep 1000')
    wait_until in_state "$ending" RUNNING
    "$lab" at n1 pkill -STOP slurmstepd
    "$lab" run scancel "$ending"
    wait_until is_completing "$ending"
    lock_of "$ending"
    is_refused "$ending"
    is_completing "$ending"
    "$lab" at n1 pkill -CONT slurmstepd
    wait_until in_state "$ending" CANCELLED
    # Of another user's that Slurm may merely hide.
    lock_of 99999
    chown nobody c/lock
    is_refused 99999
    for id in 99999 "$ending" "$id"; do
        lock_of "$id"
        chown "$(id -u)" c/lock
        resume
        [ "$status" -eq 0 ]
        [[ "$output" == *"c/lock: was of job $id, process "*" on n1, since "*": its job is over, as \
Slurm says: taken over"* ]]
    done
    [ "$(cat c/latest)" = step-00000008 ]
}

# Tasks of an array; and two jobs in one directory, of which one has a log by submit's name.
@test "the log of a script of one's own is found by its job's number" {
    local id number first second train
    mkdir -p run/own
    train=$(printf '%q ' "$TASUKI" train "${training[@]}" --steps 4)
    id=$("$lab" run sbatch --parsable -N1 --ntasks-per-node=1 --array=1-2 -o /dev/null --wrap \
        "$train --log run/own/%a.jsonl")
    first=$("$lab" run sbatch --parsable -N1 --ntasks-per-node=1 --wrap "$train --log log.jsonl")
    second=$("$lab" run sbatch --parsable -N1 --ntasks-per-node=1 --wrap "$train --log b.jsonl")
    for task in "${id}_1" "${id}_2" "$first" "$second"; do wait_until ended "$task"; done
    printf '{"event":"start","job":"%s"}\n' "${id}_2" 7 >run/other.jsonl
    printf '{"event":"start","job":"%s","cluster":"far"}\n' "${id}_2" >run/far.jsonl
    printf '{"event":"start","job":"%s"}\n' "${id}_2" >run/foreign.jsonl
    chown nobody run/foreign.jsonl
    ln -s "$PWD/run/own/1.jsonl" run/link.jsonl
    mkfifo run/pipe.jsonl
    truncate -s 1T run/long.jsonl
    number=$("$lab" run squeue -h -t all -j "${id}_1" -o %A)
    while read -r job name; do
        run "$lab" run "$TASUKI" watch "$job" --once
        echo "$job: $output"
        [[ "$output" == *"tasuki watch $name: done"* ]]
    done <<<"$number 1.jsonl
${id}_1 1.jsonl
${id}_2 2.jsonl
$first log.jsonl
$second b.jsonl"
    rm b.jsonl run/own/2.jsonl
    run "$lab" run "$TASUKI" watch "$second" --once     # nothing better
    [[ "$output" == *"tasuki watch log.jsonl: done"* ]]
    run "$lab" run "$TASUKI" watch "${id}_2"
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"job ${id}_2 (completed): there is no log.jsonl beside its output /dev/null, \
and of the *.jsonl below $PWD that were looked at none names it: give the file of its --log" ]]
}

@test "a job that loses a rank goes on within its allocation, with the same curve" {
    start_to_lose 2
    "$lab" at n2 pkill -9 -x tasuki
    goes_on 0
    grep -q 'rank 1 (n2) is lost' run/job-"$id".out
}

@test "a job that is cancelled is not requeued; sbatch goes on; one that gets on has no end" {
    local id
    export TASUKI_TEST_DELAY=1:30000
    id=$(submit "${training[@]}" --steps 1000 --nodes 1 --ntasks-per-node 1 --directory run \
        --max-restarts 0)
    grep -qx 'max-restarts = 0' run/job.conf
    wait_until has_line run/log.jsonl '^{"step":2,'
    "$lab" run scancel "$id"
    wait_until ended "$id"
    in_state "$id" CANCELLED
    id=$("$lab" run sbatch --parsable run/job.sh)
    wait_until has_line run/log.jsonl '^{"step":36,'
    grep -q 'resuming from' run/job-"$id".out
    "$lab" run scancel -b -s USR1 "$id"
    wait_until in_state "$id" PENDING
    cat run/job-"$id".out
    wait_until has_line run/job-"$id".out "job $id: to be continued; Slurm is asked"
    "$lab" run scancel "$id"
}

@test "a job goes on also where there is no libslurm; one that may not be requeued says so" {
    local id modules=$PWD/modules
    mkdir modules
    cp "$TASUKI_PKGLIBDIR"/tasuki-mpi.so modules
    export TASUKI_TEST_DELAY=1:30000
    id=$(TASUKI_PKGLIBDIR=$modules submit "${training[@]}" --steps 1000 --nodes 1 \
        --ntasks-per-node 1 --directory run)
    wait_until has_line run/log.jsonl '^{"step":2,'
    "$lab" run scancel -b -s USR1 "$id"
    wait_until in_state "$id" PENDING
    cat run/job-"$id".out
    wait_until has_line run/job-"$id".out "job $id: to be continued; Slurm is asked"
    [ "$(restarts "$id")" -eq 1 ]
    "$lab" run scancel "$id"
    id=$(submit "${training[@]}" --steps 1000 --nodes 1 --ntasks-per-node 1 --directory once \
        -- --no-requeue)
    wait_until has_line once/log.jsonl '^{"step":2,'
    "$lab" run scancel -b -s USR1 "$id"
    wait_until ended "$id"
    cat once/job-"$id".out
    in_state "$id" FAILED
    grep -q "job $id is not started again: it may not be requeued" once/job-"$id".out
}

@test "nodes are chosen within the partition's limits, ranks by sockets, and it is said why" {
    run submit "${training[@]}" --steps 6 --stages 1 --nodes auto --partition small --dry-run \
        --cluster tree:4x2,inside=1e9,across=1e9
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"partition small gives 1 to 2 nodes; compared: all of these"* ]]
    [[ "$output" == *"Recommended: "[12]" nodes."* ]]
    [[ "$output" == *"#SBATCH --nodes="[12]$'\n#SBATCH --ntasks-per-node=2\n'* ]]
    [[ "$output" == *$'\n#SBATCH --cpus-per-task=2\n'* ]]
    [[ "$output" == *$'\n#SBATCH --partition=small\n'* ]]
    [ "$(ls)" = "" ]
}

@test "each rank gets a GPU where that is meant, and GPUs that nobody asks for are an error" {
    begin_in_lab
    run submit "${training[@]}" --steps 6 --nodes 2
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"partition main: node n1 has 2 GPUs, and --device is not given: --device cuda \
uses GPUs, --device cpu says that none are meant to be used"* ]]
    [ "$(ls)" = "" ]
    run submit "${training[@]}" --steps 6 --nodes 2 --dry-run --device cpu
    [ "$status" -eq 0 ]
    [[ "$output" != *gpus-per-node* ]]
    run submit "${training[@]}" --steps 6 --nodes 2 --dry-run --device cuda
    echo "$output"
    [[ "$output" == *$'\n#SBATCH --ntasks-per-node=2\n'* ]]
    [[ "$output" == *$'\n#SBATCH --gpus-per-node=2\n'* ]]
}

@test "what the partition does not give is refused, and nothing is left behind" {
    while IFS='|' read -r options message; do
        run submit "${training[@]}" --steps 6 $options
        echo "$options: $status $output"
        [ "$status" -eq 1 ]
        [[ "$output" == *"$message"* ]]
    done <<'END'
--partition nowhere|partition nowhere: Slurm knows of no such partition; there are: main; small
--partition closed|partition closed is in state drain: it takes no jobs
--partition small --nodes 3|--nodes 3: partition small gives a job 2 at most
--nodes 4|--nodes 4: partition main has 3
--nodes 1..4|--nodes 4: partition main has 3
--partition small --time 31|--time 0:31: partition small allows 0:30
--device cuda --ntasks-per-node 3|nodes of partition main have 2 GPUs, and each rank takes one
-- --nodelist=n9|sbatch: error:
END
    [ "$(ls)" = "digits-1" ]     # sbatch's own refusal: the script is kept
}
