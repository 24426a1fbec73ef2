# SPDX-License-Identifier: MIT
# Jobs that "tasuki submit --scheduler sge" writes, run by a real Grid Engine on virtual nodes.

bats_require_minimum_version 1.5.0
load common

gridengine=$srcdir/tests/slurm/gridengine

setup_file() {
    local reason
    export LAB_DIR=$BATS_FILE_TMPDIR/lab LAB_NODES=2 LAB_CPUS=2 LAB_SLURM=no
    reason=$(no_mpi)
    [ -n "$reason" ] || reason=$("$gridengine" why-not) || reason=
    start_lab "$reason"
    [ -n "$WHY_NOT" ] || "$gridengine" up
}

teardown_file() {
    stop_lab
}

setup() {
    begin_in_lab
}

# Writes the script of a run in the folder "run", with what is given for it: there is no qsub.
write_script() {
    run --separate-stderr "$gridengine" run env PATH=/nonexistent "$TASUKI" submit "${training[@]}" --scheduler sge \
        --nodes 2 --ntasks-per-node 1 --directory run "$@" -- -pe mpi 2
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [ "$output" = "qsub -pe mpi 2 run/job.sh" ]
}

# Until its step number $1 is done and its log, $2, has said so, within two minutes.
wait_for_step() {
    local end=$((SECONDS + 120)) log=${2:-run/log.jsonl}
    until sed -n "/^{\"step\":$1,/,\$p" "$log" 2>/dev/null | grep -q '"event": *"end"'; do
        [ $SECONDS -lt $end ] || { tail -n 30 run/*.out "$LAB_DIR"/sge/*/messages; return 1; }
        sleep 0.2
    done
}

# Until no job waits or runs, within two minutes.
wait_for_empty_queue() {
    local end=$((SECONDS + 120)) left
    while left=$("$gridengine" run qstat -u '*') && [ -n "$left" ]; do
        [ $SECONDS -lt $end ] || { echo "$left"; return 1; }
        sleep 0.2
    done
}

@test "a job trains on two nodes, with the curve of one rank" {
    "$TASUKI" train "${training[@]}" --steps 6 --log alone
    run --separate-stderr "$gridengine" run "$TASUKI" submit "${training[@]}" --nodes 2 \
        --ntasks-per-node 1 --directory run --scheduler sge --steps 6 --stages 2 --replicas 1,1 \
        -- -pe mpi 2
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [[ "$output" =~ ^[0-9]+$ ]]
    wait_for_step 6
    cat run/job.out
    grep -q '"n1"' run/log.jsonl
    grep -q '"n2"' run/log.jsonl
    same_losses run/log.jsonl alone
}

@test "a job whose limit is near goes on in the next one, with the same curve" {
    "$TASUKI" train "${training[@]}" --steps 16 --log alone
    export TASUKI_TEST_DELAY=1:60000
    write_script --steps 16 --stages 2 --replicas 1,1 --time 30
    grep -q '^export TASUKI_JOB_END=.* + 1800))$' run/job.sh
    # The first job's is in 8 seconds, of which half are kept free.
    sed -i '/^export TASUKI_JOB_END=/s/1800/(restarts ? 1800 : 8)/' run/job.sh
    "$gridengine" run qsub -pe mpi 2 run/job.sh
    wait_for_step 16
    cat run/job.out
    grep -q ' seconds are left of the job.s limit: a checkpoint is asked for' run/job.out
    grep -q 'to be continued, restart 1' run/job.out
    grep -q 'resuming from' run/job.out
    same_losses run/log.jsonl alone
}

@test "tasks of an array have files of their own, and each goes on alone" {
    local task ran first
    "$TASUKI" train "${training[@]}" --steps 8 --log alone
    "$gridengine" run env PATH=/nonexistent "$TASUKI" submit "${training[@]}" --scheduler sge --nodes 1 \
        --ntasks-per-node 1 --directory run --steps 8 --time 1 -- -t 2-4:2
    # The limit of a task's first job is over at once: it ends after a step.
    sed -i '/^export TASUKI_JOB_END=/s/60))/(restarts ? 1800 : 0)))/' run/job.sh
    sed -i '/^unset TASUKI_JOB_END/a touch "run/ran-$JOB_ID.$SGE_TASK_ID"' run/job.sh
    "$gridengine" run qsub -t 2-4:2 run/job.sh
    for task in 2 4; do
        wait_for_step 8 run/log-$task.jsonl
        cat run/job-$task.out
        same_losses run/log-$task.jsonl alone
        [ "$(grep -c 'to be continued' run/job-$task.out)" -eq 1 ]
        grep -q 'resuming from' run/job-$task.out
        [ -e run/checkpoints-$task/step-00000008 ]
    done
    wait_for_empty_queue
    # Each went on once, in a job of its own, and no other task ran.
    [ "$(cd run && echo log-*)" = "log-2.jsonl log-4.jsonl" ]
    ran=$(cd run && printf '%s\n' ran-* | sort -V)
    first=$(sed -n '1s/.*-\(.*\)\..*/\1/p' <<<"$ran")
    echo "$ran"
    [ "$(head -n 2 <<<"$ran" | xargs)" = "ran-$first.2 ran-$first.4" ]
    [ "$(tail -n +3 <<<"$ran" | sed 's/.*\.//' | sort | xargs)" = "2 4" ]
    [ "$(tail -n +3 <<<"$ran" | sed 's/\..*//' | sort -u | wc -l)" -eq 2 ]
}
