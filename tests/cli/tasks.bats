# SPDX-License-Identifier: MIT
# Several tasks, each of which is several ranks: --ranks-in-process under mpirun.

load data.bash

setup() {
    has_mpi || skip "no MPI"
    ranks_setup
    cd "$DIR"
    DEMO=$srcdir/etc/demo
    MODEL="$DEMO/digits.onnx --data $DEMO/digits-train.safetensors --batchnorm-samples 4"
    RUN="$MODEL --global-batch 32 --seed 5 --optimizer adamw --deterministic -q"
    export TASUKI_PKGLIBDIR=$builddir/.libs
    measured ../cost.json --optimizer adamw
    RUN="$RUN --cost ../cost.json"
}

teardown() {
    [ -z "${job-}" ] || kill "$job" 2>/dev/null || true
}

# tasks N RANKS ARGUMENTS...: N tasks of so many ranks each.
tasks() {
    local n=$1 ranks=$2
    shift 2
    timeout 120 mpirun -n "$n" "$TASUKI" train $RUN --ranks-in-process "$ranks" "$@"
}

# unequal ARGUMENTS...: a task of one rank, and one of three.
unequal() {
    timeout 120 mpirun -n 1 "$TASUKI" train $RUN --ranks-in-process 1 "$@" : \
        -n 1 "$TASUKI" train $RUN --ranks-in-process 3 "$@"
}

# weights CHECKPOINT: what all of its files hold.
weights() {
    (cd "$1" && find . -name '*.safetensors' -exec sha256sum {} +) | sort -k 2
}

# begin ARGUMENTS...: two tasks of two ranks that train on, as $job; $tasks are their processes.
begin() {
    rm -f log
    mpirun -n 2 "$TASUKI" train $RUN --ranks-in-process 2 --steps 1000000 --log log "$@" \
        >out 2>&1 3>&- &
    job=$!
    for _ in $(seq 3000); do
        ! grep -q '^{"step"' log 2>/dev/null || break
        kill -0 $job || break
        sleep 0.1
    done
    mapfile -t tasks < <(pgrep -P $job)
    [ ${#tasks[@]} -eq 2 ]
}

# Has $job ended by itself within so many seconds? Then $code says how.
ended() {
    for _ in $(seq $((10 * $1))); do
        if ! kill -0 $job 2>/dev/null; then
            code=0
            wait $job || code=$?
            job=
            return 0
        fi
        sleep 0.1
    done
    return 1
}

@test "tasks of several ranks give the bits of as many tasks of one" {
    local plan n=0
    for plan in "--stages 4" "--replicas 4" "--replicas 4 --zero" \
        "--stages 2 --replicas 2,2 --zero" "--stages 2 --replicas 2,2 --clip-norm 1"; do
        echo "$plan"
        n=$((n + 1))
        mpirun -n 4 "$TASUKI" train $RUN --steps 5 $plan --log one.$n --checkpoint of-one.$n
        tasks 2 2 --steps 5 $plan --log two.$n --checkpoint of-two.$n
        [ "$(exact two.$n | wc -l)" -eq 5 ]
        diff <(exact one.$n) <(exact two.$n)
        [ -n "$(weights of-two.$n)" ]
        diff <(weights of-one.$n) <(weights of-two.$n)
    done
}

@test "tasks need not be of the same number of ranks" {
    local plan
    for plan in "--stages 4" "--stages 2 --replicas 2,2 --zero"; do
        mpirun -n 4 "$TASUKI" train $RUN --steps 5 $plan --log one
        unequal --steps 5 $plan --log three
        diff <(exact one) <(exact three)
        [ "$(exact three | wc -l)" -eq 5 ]
        rm one three
    done
}

@test "where no send ends before its receive has begun, nothing stands still" {
    TASUKI_RENDEZVOUS=1 tasks 2 2 --steps 3 --stages 4 --micro-batches 8 --log log
    TASUKI_RENDEZVOUS=1 tasks 2 2 --steps 3 --replicas 4 --zero --log log2
    [ "$(exact log | wc -l)" -eq 3 ]
    [ "$(exact log2 | wc -l)" -eq 3 ]
}

@test "auto is one rank of each task where kernels run on CPUs" {
    tasks 2 auto --steps 2 --stages 2 --log auto
    mpirun -n 2 "$TASUKI" train $RUN --steps 2 --stages 2 --log one
    diff <(exact one) <(exact auto)
}

@test "a task that is killed ends the others, which name all of its ranks" {
    local victim
    for victim in 0 1; do
        begin --stages 4
        kill -KILL "${tasks[$victim]}"
        ended 30
        cat out
        [ "$code" -ne 0 ]
        [ "$(grep -c 'error: ' out)" -eq 1 ]
        grep -q "error: ranks $((2 * victim))-$((2 * victim + 1)) (.*) are lost: their process has ended" out
    done
    tail -n 1 log | grep -q '"event":"failed","error":"ranks 2-3 '
}

# Which task is stopped is said once its ranks have been heard of.
@test "a task that is stopped ends the others, with where all ranks are" {
    begin --stages 4 --lost-after 10
    sleep 5
    kill -STOP "${tasks[1]}"
    ended 60
    cat out
    [ "$code" -eq 1 ]
    grep -q 'error: a process does not run; rank [23] (.*) does not answer' out
    [ "$(grep -cE 'error: ranks? [23](, 3)?: silent for ' out)" -ge 1 ]
    grep -qE 'error: ranks? 0(, 1)?: step ' out
}

@test "a rank that fails by itself ends all others, and it alone says why" {
    need_python
    python3 "$srcdir/tests/cli/make-data.py" tokens t.bin 400 7 header
    printf '\377\377' | dd of=t.bin bs=1 seek=$((32 + 2 * 200)) conv=notrunc status=none
    for plan in "--stages 4" "--replicas 4" "--replicas 2,2"; do
        run timeout 60 mpirun -n 2 "$TASUKI" train \
            "$srcdir/tests/data/model/transformer/model.onnx" -q --global-batch 8 --epochs 1 \
            --data t.bin --ranks-in-process 2 --log log $plan
        one_error 1 "t.bin: token 200 is 65535, the header says a vocabulary of 7"
        [[ "$output" =~ error:\ rank\ [0-3]\ \( ]]
        tail -n 1 log | grep -q '"event":"failed","error":".*token 200 is 65535'
        rm log
    done
}

# The ranks sleep in instructions, the others wait for them.
@test "that nothing moves is said, with where the ranks of all tasks are" {
    TASUKI_TEST_DELAY=3:6000000 run timeout 120 mpirun -n 2 "$TASUKI" train $RUN \
        --ranks-in-process 2 --stages 4 --steps 1 --micro-batches 2 --warn-after 2 --log log
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"warning: nothing has moved for "*" seconds (--warn-after); where the ranks are:"* ]]
    grep -qE 'warning: ranks? [0-3](, [0-3])*: step 1, stage [0-3], [A-Z]+' <<<"$output"
    grep -qE 'warning: it moves again, after [0-9]+ seconds$' <<<"$output"
}

@test "a signal to any task ends the step on all ranks, writes a checkpoint and exits 75" {
    local done
    begin --precision float64 --stages 2 --replicas 2,2 --checkpoint kept
    kill -TERM "${tasks[1]}"
    ended 100
    cat out
    [ "$code" -eq 75 ]
    done=$(sed -E 's/^step-0*//' kept/latest)
    [ "$(exact log | wc -l)" -eq "$done" ]
    unequal --precision float64 --steps $((done + 2)) --stages 4 --checkpoint kept --resume --log log
    "$TASUKI" train $RUN --precision float64 --steps $((done + 2)) --log whole
    same_curve whole log $((done + 2))
}

@test "a task takes one slot of a job, however many ranks it is" {
    local host=$(hostname)
    unset SLURM_JOB_ID
    printf '%s\n' "$host" "$host" n2 n2 >nodes
    export PBS_JOBID=7.server PBS_NODEFILE=$PWD/nodes
    # An MPI that does not know of the job.
    echo "localhost slots=3" >slots
    RUN="$RUN --steps 1 --stages 1 --ranks-in-process 2"
    mpirun --hostfile slots -n 2 "$TASUKI" train $RUN
    run mpirun --hostfile slots -n 3 "$TASUKI" train $RUN
    one_error 2 "3 tasks are on $host, where this job of PBS has 2 slots"
}

@test "what is wrong with it is said once" {
    run tasks 2 two --steps 1
    one_error 2 '--ranks-in-process: expected an integer from 1 to 4096, got "two"; or say auto'
    run tasks 2 2 --steps 1 --stages 5
    one_error 2 "--stages needs 5 ranks, this run has 4"
    run timeout 60 mpirun -n 1 "$TASUKI" train $RUN --steps 1 : \
        -n 1 "$TASUKI" train $RUN --steps 1 --ranks-in-process 2
    one_error 2 "has --ranks-in-process, task 0 ("
}

@test "an MPI that cannot do it is refused once" {
    local fake=$builddir/tests/.libs/fake_mpi.so
    [ -e "$fake" ] || skip "fake_mpi.so is not built"
    RUN="$RUN --steps 1"
    # Sanitizers want to be the first library.
    export ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0
    TASUKI_FAKE_MPI=funneled LD_PRELOAD=$fake run tasks 2 2
    one_error 2 "(MPI_THREAD_SERIALIZED), as --ranks-in-process needs"
    TASUKI_FAKE_MPI=funneled LD_PRELOAD=$fake mpirun -n 2 "$TASUKI" train $RUN
    TASUKI_FAKE_MPI=1000 LD_PRELOAD=$fake run tasks 2 2
    one_error 2 "tags up to 1000, which are too few for 2 ranks in a process"
    TASUKI_FAKE_MPI=32767 LD_PRELOAD=$fake tasks 2 2
}
