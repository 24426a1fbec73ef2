# SPDX-License-Identifier: MIT
# Jobs that Slurm itself ends before they are done, by a time limit or for another job, and starts
# again: nobody here sends them a signal.

bats_require_minimum_version 1.5.0
load common

setup_file() {
    export LAB_DIR=$BATS_FILE_TMPDIR/lab LAB_NODES=2 LAB_CPUS=4
    export LAB_EXTRA='PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=noticed Nodes=ALL PriorityTier=1 GraceTime=60 State=UP
PartitionName=ended Nodes=ALL PriorityTier=1 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=10 State=UP'
    start_slurm_lab
}

teardown_file() {
    stop_lab
}

setup() {
    begin_in_lab --stages 2 --replicas 1,1
}

waits_to_begin() {
    [ "$("$lab" run squeue -h -j "$1" -o '%T %r')" = "PENDING BeginTime" ]
}

is_off() {
    ! in_state "$1" PENDING || false
}

# The job $1 ends; a requeued one does not wait two minutes.
lets_end() {
    local end=$((SECONDS + 420))
    until ended "$1"; do
        [ $SECONDS -lt $end ] || { what_is_there; return 1; }
        if waits_to_begin "$1"; then
            let_go_on "$1"
            wait_until is_off "$1"
        fi
        sleep 0.2
    done
    cat run/job-"$1".out
    in_state "$1" COMPLETED
}

# Steps that are done once only, since each allocation ends with a checkpoint.
goes_on_where_it_was() {
    same_losses run/log.jsonl alone
    [ "$(grep -c 'resuming from' run/job-"$1".out)" -ge "$2" ]
    wait_until all_idle
}

# Slurm tells of the limit within the half minute before which it was asked to, and so within that
# after the start: more than a minute of steps takes three allocations.
@test "a job longer than its time limit ends by itself after three allocations, with the same curve" {
    local id
    "$TASUKI" train "${training[@]/1,1/1,1}" --ranks-in-process 2 --steps 64 --log alone -q
    export TASUKI_TEST_DELAY=1:100000
    id=$(submit "${training[@]}" --steps 64 --nodes 2 --ntasks-per-node 1 --time 1 \
        --directory run)
    lets_end "$id"
    [ "$(restarts "$id")" -ge 2 ]
    goes_on_where_it_was "$id" 2
    [ "$(grep -c 'to be continued' run/job-"$id".out)" -eq "$(restarts "$id")" ]
}

# With a grace time ranks get SIGTERM and a minute to leave, and their script hears of nothing;
# without one it is told, too, and all are killed after KillWait.
@test "a job that makes room for an urgent one goes on after it, with the same curve" {
    local id partition urgent
    "$TASUKI" train "${training[@]}" --ranks-in-process 2 --steps 30 --log alone -q
    export TASUKI_TEST_DELAY=1:100000
    for partition in noticed ended; do
        rm -rf run
        id=$(submit "${training[@]}" --steps 30 --nodes 2 --ntasks-per-node 1 --directory run \
            --partition $partition)
        wait_until has_line run/log.jsonl '^{"step":5,'
        urgent=$("$lab" run sbatch --parsable -p urgent -N2 --exclusive -o urgent.out \
            --wrap 'echo there')
        wait_until in_state "$urgent" COMPLETED
        run ! has_line run/log.jsonl '^{"step":29,'
        lets_end "$id"
        [ "$(restarts "$id")" -eq 1 ]
        goes_on_where_it_was "$id" 1
    done
}

# The other one's files are not touched, and it is not kept waiting.
@test "a task of an array that is requeued goes on from its own checkpoint, with the same curve" {
    local id log
    "$TASUKI" train "${training[@]}" --ranks-in-process 2 --steps 16 --log alone -q
    export TASUKI_TEST_DELAY=1:30000
    id=$(submit "${training[@]}" --steps 16 --nodes 1 --ntasks-per-node 2 --directory run \
        --checkpoint-every 4 -- --array=1-2)
    wait_until has_line run/log-1.jsonl '^{"step":7,'
    "$lab" run scontrol requeue "${id}_1"
    wait_until ended "${id}_2"
    let_go_on "${id}_1"
    wait_until ended "${id}_1"
    tail -n 50 run/job-"$id"_*.out
    in_state "${id}_1" COMPLETED
    in_state "${id}_2" COMPLETED
    grep -q 'resuming from run/checkpoints-1/' run/job-"${id}_1".out
    run ! grep 'resuming from' run/job-"${id}_2".out
    for log in run/log-1.jsonl run/log-2.jsonl; do
        last_of_each_step $log >once
        same_losses once alone
    done
}

# A script that has nothing but the training: bare OPTIONS-OF-SBATCH... -- TRAINING...
bare() {
    local options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    rm -rf run
    mkdir run
    "$lab" run sbatch --parsable -N2 --ntasks-per-node=1 -o "$PWD/run/job-%j.out" \
        --open-mode=append "${options[@]}" --wrap "$(printf '%q ' "$TASUKI" train "$@" \
        --checkpoint run/c --log run/log.jsonl)"
}

# The launcher asks for the checkpoint, and for the requeue; nothing says --resume.
@test "a script of one's own that reaches its limit is started again, and goes on, with the same curve" {
    local id
    "$TASUKI" train "${training[@]}" --ranks-in-process 2 --steps 64 --log alone -q
    export TASUKI_TEST_DELAY=1:100000
    id=$(bare -t 1 -- "${training[@]}" --steps 64)
    lets_end "$id"
    [ "$(restarts "$id")" -ge 1 ]
    goes_on_where_it_was "$id" 1
    [ "$(grep -c 'to be continued; Slurm is asked' run/job-"$id".out)" -eq "$(restarts "$id")" ]
}

# With --no-kill the launcher sees that too few are left; without, Slurm ends the job, and requeues it.
@test "a script of one's own that loses a node is started again, and goes on, with the same curve" {
    local id said kill=(--no-kill)
    "$TASUKI" train "${training[@]}" --ranks-in-process 2 --steps 16 --log alone -q
    export TASUKI_TEST_DELAY=1:30000
    for said in 1 0; do
        id=$(bare "${kill[@]}" -- "${training[@]}" --steps 16 --checkpoint-every 4)
        wait_until has_line run/log.jsonl '^{"step":7,'
        "$lab" off n2
        "$lab" run scontrol update nodename=n2 state=down reason=test
        wait_until in_state "$id" PENDING
        "$lab" on n2
        lets_end "$id"
        [ "$(restarts "$id")" -eq 1 ]
        [ "$(grep -c 'to be continued; Slurm is asked' run/job-"$id".out)" -eq $said ]
        [ "$(grep -c 'resuming from run/c/step-0000000[48]' run/job-"$id".out)" -eq 1 ]
        last_of_each_step run/log.jsonl >once
        same_losses once alone
        [ "$(wc -l <once)" -eq 16 ]
        wait_until all_idle
        kill=()
    done
}

# Slurm has the last task of an array under the number of the array itself.
@test "a task of an array in a script of one's own is started again alone, with the same curve" {
    local id task
    "$TASUKI" train "${training[@]}" --ranks-in-process 2 --steps 16 --log alone -q
    mkdir run
    export TASUKI_TEST_DELAY=1:30000
    id=$("$lab" run sbatch --parsable -N1 --ntasks-per-node=2 -o "$PWD/run/job-%A_%a.out" \
        --open-mode=append --array=1-2 --wrap "exec $(printf '%q ' "$TASUKI" train \
        "${training[@]}" --steps 16 --checkpoint run/c-%a --log run/log-%a.jsonl)")
    wait_until has_line run/log-2.jsonl '^{"step":4,'
    "$lab" run scancel -b -s USR1 "${id}_2"
    wait_until in_state "${id}_2" PENDING
    [ "$(restarts "${id}_2")" -eq 1 ]
    wait_until ended "${id}_1"
    let_go_on "${id}_2"
    wait_until ended "${id}_2"
    tail -n 50 run/job-"$id"_*.out
    for task in 1 2; do
        in_state "${id}_$task" COMPLETED
        same_losses run/log-$task.jsonl alone
    done
    [ "$(restarts "${id}_1")" -eq 0 ]
    grep -q 'resuming from run/c-2/' run/job-"${id}_2".out
    run ! grep 'resuming from' run/job-"${id}_1".out
}

@test "a script of one's own that is cancelled, or does nothing about SIGTERM, stays so" {
    local id signal
    export TASUKI_TEST_DELAY=1:30000
    for signal in '' --signal=TERM\ --full; do
        id=$(bare -- "${training[@]}" --steps 1000)
        wait_until has_line run/log.jsonl '^{"step":2,'
        "$lab" run scancel $signal "$id"
        wait_until ended "$id"
        cat run/job-"$id".out
        run ! in_state "$id" COMPLETED
        [ "$(restarts "$id")" -eq 0 ]
        wait_until all_idle
    done
}

# To the launcher alone, as who shuts a node down may; and to all there is of a job.
@test "a job that is told by SIGTERM to leave its node is started again, and goes on, with the same curve" {
    local id
    "$TASUKI" train "${training[@]}" --ranks-in-process 2 --steps 16 --log alone -q
    export TASUKI_TEST_DELAY=1:30000
    id=$(submit "${training[@]}" --steps 16 --nodes 2 --ntasks-per-node 1 --directory run)
    wait_until has_line run/log.jsonl '^{"step":2,'
    "$lab" at n1 pkill -TERM -o -x tasuki
    lets_end "$id"
    [ "$(restarts "$id")" -eq 1 ]
    goes_on_where_it_was "$id" 1
    rm -r run
    mkdir run
    id=$("$lab" run sbatch --parsable -N2 --ntasks-per-node=1 -o "$PWD/run/job-%j.out" \
        --open-mode=append --wrap "exec $(printf '%q ' "$TASUKI" train "${training[@]}" \
        --steps 16 --checkpoint run/c --log run/log.jsonl)")
    wait_until has_line run/log.jsonl '^{"step":2,'
    "$lab" run scancel --full --signal=TERM "$id"
    lets_end "$id"
    [ "$(restarts "$id")" -eq 1 ]
    goes_on_where_it_was "$id" 1
}
