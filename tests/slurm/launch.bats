# SPDX-License-Identifier: MIT
# "tasuki train" in an allocation of a real Slurm, but outside a step: it starts the steps.

bats_require_minimum_version 1.5.0
load common

setup_file() {
    export LAB_DIR=$BATS_FILE_TMPDIR/lab LAB_NODES=3 LAB_CPUS=4
    start_slurm_lab
}

teardown_file() {
    stop_lab
}

teardown() {
    [ "$LAB_DIR" != "$BATS_TEST_TMPDIR/lab" ] || stop_lab
}

setup() {
    begin_in_lab --stages 2 --replicas 1,1
}

# In an allocation: allocate OPTIONS... -- TRAINING...
allocate() {
    local options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    "$lab" run timeout -s KILL 240 salloc -Q "${options[@]}" "$TASUKI" train "$@"
}

# Slow steps in an allocation of all nodes, in the background: "$job" is salloc.
start_slow() {
    TASUKI_TEST_DELAY=1:30000 allocate -N3 --no-kill -- "${training[@]}" --steps 16 \
        --checkpoint c --checkpoint-every 4 --log log "$@" >out 2>&1 3>&- &
    job=$!
}

# It has ended with code $1, and left nothing by which ranks tell how they did.
ends_clean() {
    ends_with "$1"
    [ ! -e c/.fate* ]
}

# The whole curve is that of a run which nothing has disturbed.
same_curve() {
    "$TASUKI" train "${training[@]/1,1/1,1}" --ranks-in-process 2 --steps 16 --log alone -q
    last_of_each_step log >once
    same_losses once alone
    [ "$(wc -l <once)" -eq 16 ]
}

@test "train starts the step on all nodes, with the curve of one process; or leaves it" {
    run allocate -N3 --ntasks-per-node=1 -- "${training[@]}" --steps 6 --log log
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"3 nodes, 1 rank on each"* ]]
    [[ "$output" == *"2 ranks of 3"* ]]
    "$TASUKI" train "${training[@]}" --ranks-in-process 2 --steps 6 --log alone -q
    same_losses log alone
    run allocate -N3 -- "${training[@]}" --steps 6 --launcher none
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"this run has 1"* ]]
}

@test "what is wrong for good is not tried again, and its code is that of the launcher" {
    run allocate -N2 -- "${training[@]}" --steps 6 --checkpoint c --pipelines 9
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" != *"going on"* ]]
    run allocate -N2 -- "${training[@]}" --steps 6 --checkpoint c --stages 7 --replicas 1,1
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" != *"going on"* ]]
}

@test "ranks come in the order of a plan that names nodes, and a wrong order is refused" {
    local data=(--data "$demo/digits-train.safetensors")
    srun --mpi=pmix -N3 --ntasks-per-node=1 "$TASUKI" topo --measure=none --format json \
        -o topo.json
    "$TASUKI" profile "$demo/digits.onnx" "${data[@]}" --precision float64 --threads 1 -q \
        -o cost.json
    "$TASUKI" plan "$demo/digits.onnx" "${data[@]}" --precision float64 --cluster topo.json \
        --cost cost.json --global-batch 32 --batchnorm-samples 8 --stages 3 \
        --replicas 1,1,1 -o plan.json
    sed 's,n1/,nX/,; s,n3/,n1/,; s,nX/,n3/,' plan.json >turned.json
    grep -o 'n[123]/cpu' turned.json >order
    [ "$(tr -d '\n' <order)" = n3/cpun2/cpun1/cpu ]
    cat >srun <<END
#!/bin/bash
[ -z "\$SLURM_HOSTFILE" ] || stat -c %a "\$SLURM_HOSTFILE" >mode
exec $(type -P srun) "\$@"
END
    chmod +x srun
    PATH=$PWD:$PATH run allocate -N3 --ntasks-per-node=1 -- turned.json "${data[@]}" --steps 6 \
        --seed 5 --log log
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(cat mode)" = 600 ]
    [[ "$output" != *"made for"* ]]
    "$TASUKI" train "${training[@]}" --ranks-in-process 2 --steps 6 --log alone -q
    same_losses log alone
    TASUKI_ORDER=plan run srun --mpi=pmix -N3 --ntasks-per-node=1 "$TASUKI" train turned.json \
        "${data[@]}" --steps 6 --seed 5
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"rank 0 is on n1; in the order of the plan it is on n3"* ]]
}

@test "a signal is handed on: the launcher ends with 75 and a checkpoint" {
    local signal
    for signal in USR1 TERM INT HUP; do
        rm -rf c log
        start_slow
        wait_until has_line log '^{"step":2,'
        "$lab" run pkill -$signal -xf "$TASUKI train .*" --parent "$("$lab" run pgrep -x salloc)"
        ends_clean 75
        # Of the step in which it came, not one that was there before.
        [ "$(cat c/latest)" = "step-$(printf %08d "$(grep -c '^{"step":' log)")" ]
    done
}

# Its last words, that it is to go on, are then for nobody.
@test "the launcher ends as it would when nobody reads what it says any more" {
    TASUKI_TEST_DELAY=1:30000 "$lab" run timeout -s KILL 240 salloc -Q -N2 bash -c '"$@" 2>&1 |
        head -n 1; echo "${PIPESTATUS[0]}" >status' - "$TASUKI" train "${training[@]}" \
        --steps 1000 --checkpoint c --log log >out 3>&- &
    job=$!
    wait_until has_line log '^{"step":2,'
    "$lab" run pkill -TERM -xf "$TASUKI train .*" --parent "$("$lab" run pgrep -P \
        "$("$lab" run pgrep -x salloc)" -x bash)"
    ends_with 0
    [ "$(cat status)" -eq 75 ]
    [ -e c/latest ]
}

# A node that is asked how it is must not train; nor may variables be missing there.
@test "a job that exports nothing of its environment is trained as another one" {
    local said
    for said in NONE PATH,TASUKI_PKGLIBDIR; do
        rm -rf c
        SLURM_EXPORT_ENV=$said SRUN_EXPORT_ENV=$said run allocate -N2 -- "${training[@]}" --steps 4 --checkpoint c
        echo "$output"
        [ "$status" -eq 0 ]
        [[ "$output" == *"2 nodes, 1 rank on each"*"2 ranks of 2"* ]]
        [ -e c/step-00000004 ]
    done
}

@test "another launcher of the job, which is refused, takes nothing from the one that runs" {
    cat >two <<'END'
"$@" --checkpoint c --log log &
first=$!
until grep -qs '^{"step":2,' log; do sleep 0.1; done
"$@" --checkpoint c --log other && exit 1
[ -e c/.restarts ]; echo "restarts $?"
kill -TERM $first
wait $first
echo "first $?"
END
    TASUKI_TEST_DELAY=1:30000 "$lab" run timeout -s KILL 240 salloc -Q -N2 bash two "$TASUKI" train \
        "${training[@]}" --steps 1000 >out 2>&1
    cat out
    grep -q 'another run writes checkpoints here: job' out
    grep -qx 'restarts 0' out
    grep -qx 'first 75' out
    [ -e c/latest ]
    [ ! -e c/.fate* ]
}

@test "a second SIGINT ends a run at once, for good; what else was left of launchers goes with it" {
    local launcher
    mkdir -p c/.fate-1-2-0
    touch -d '2 hours ago' c/.fate-1-2-0
    TASUKI_TEST_DELAY=1:500000 allocate -N2 -- "${training[@]}" --steps 16 --checkpoint c \
        --log log >out 2>&1 3>&- &
    job=$!
    wait_until has_line log '^{"step":1,'
    launcher=$("$lab" run pgrep -xf "$TASUKI train .*" --parent "$("$lab" run pgrep -x salloc)")
    "$lab" run kill -INT "$launcher"
    # Two that wait to be taken are one.
    wait_until "$lab" run grep -q '^ShdPnd:[[:space:]]*0*$' "/proc/$launcher/status"
    "$lab" run kill -INT "$launcher"
    ends_with 1
    grep -q 'ended at once, by a second SIGINT; there is no checkpoint of its last steps' out
    rm -f c/lock
    run allocate -N2 -- "${training[@]}" --steps 4 --checkpoint c
    echo "$output"
    [ "$status" -eq 0 ]
    [ ! -e c/.fate-1-2-0 ]
}

@test "what keeps the launcher from starting is said" {
    run "$lab" run salloc -Q -N1 : -N1 "$TASUKI" train "${training[@]}" --steps 4
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"is a heterogeneous one, of 2 parts, "*"srun --mpi=pmix --het-group=0-1 tasuki train"* ]]
    run "$lab" run salloc -Q -N1 env PATH=/nowhere "$TASUKI" train "${training[@]}" --steps 4
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"srun, which is to start the ranks, is not in PATH"* ]]
}

# Files of its own in their places would be the children's.
@test "the launcher starts at once, too, where standard files are closed" {
    local start=$SECONDS
    "$lab" run timeout -s KILL 240 salloc -Q -N2 bash -c '"$@" <&- >&- 2>&-' - "$TASUKI" train \
        "${training[@]}" --steps 4 --log log
    [ $((SECONDS - start)) -lt 30 ]
    has_line log '"outcome":"done"'
}

@test "checkpoints in a directory that each node has its own of are refused before the first step" {
    run srun --mpi=pmix -N2 --ntasks-per-node=1 "$TASUKI" train "${training[@]}" --steps 4 \
        --checkpoint /dev/shm/c --log log
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"rank 1 (n2): /dev/shm/c: is not what rank 0 sees there: checkpoints need a file \
system that all nodes share"* ]]
    run ! has_line log '^{"step":1,'
}

# Half of a limit of a minute.
@test "a step that srun alone started asks libslurm for the limit, and ends before it" {
    local start=$SECONDS
    TASUKI_TEST_DELAY=1:30000 run srun -t 1 --mpi=pmix -N2 --ntasks-per-node=1 "$TASUKI" train \
        "${training[@]}" --steps 100000 --checkpoint c
    echo "$output"
    [ "$status" -eq 75 ]
    [ $((SECONDS - start)) -lt 60 ]
    grep ' seconds are left of the job.s limit: a checkpoint is asked for' <<<"$output"
    [ -e c/latest ]
    run srun --mpi=pmix -N2 --ntasks-per-node=1 "$TASUKI" train "${training[@]}" --steps 8 \
        --checkpoint c
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" != *limit* ]]
}

# It would end after half of a minute, by the first limit.
@test "a step that srun alone started follows a limit that is extended" {
    runs_for() {
        [ "$("$lab" run squeue -h -t running -o %M)" \> "$1" ]
    }
    TASUKI_TEST_DELAY=1:30000 srun -t 1 --mpi=pmix -N2 --ntasks-per-node=1 "$TASUKI" train \
        "${training[@]}" --steps 100000 --checkpoint c --log log >out 2>&1 3>&- &
    job=$!
    wait_until has_line log '^{"step":3,'
    "$lab" run scontrol update jobid="$("$lab" run squeue -h -o %i)" TimeLimit=9
    wait_until runs_for 0:34
    "$lab" run scancel -s USR1 --user=root
    ends_clean 75
    ! grep -q "seconds are left" out || false
}

# Half of a limit of a minute.
@test "before the time limit that libslurm tells a checkpoint is written, without a signal" {
    local start=$SECONDS
    TASUKI_TEST_DELAY=1:30000 allocate -N3 --time 1 -- "${training[@]}" --steps 100000 \
        --checkpoint c --log log >out 2>&1 3>&- &
    job=$!
    ends_clean 75
    [ $((SECONDS - start)) -lt 60 ]
    grep -q ' seconds are left of the job.s limit: a checkpoint is asked for' out
    [ -e c/latest ]
}

@test "after the death of a rank a new step goes on from the checkpoint, with the same curve" {
    start_slow
    wait_until has_line log '^{"step":7,'
    # What the launcher and the ranks tell each other is theirs alone.
    [ "$(stat -c %a c/.restarts c/lock c/.fate-* | xargs)" = "600 600 700" ]
    "$lab" at n2 pkill -9 -x tasuki
    ends_clean 0
    grep -q 'rank 1 (n2) is lost' out
    grep -q 'job .*: 2 steps, .* node-hours, 0 GPU-hours, ' out
    grep -q 'going on from step-0000000[48] with 3 nodes, restart 1 of at most 3' out
    same_curve
}

# The others name it after 20 seconds (--lost-after), and leave; srun gives a stopped one 30 more, and
# Slurm kills it. Nodes are asked, and another step starts: 90 seconds are enough of a busy machine.
@test "after a rank was stopped for good a new step goes on within 90 seconds, and it is killed" {
    local start stopped
    export SLURM_KILL_BAD_EXIT=0        # as Slurm has it by default
    start_slow
    wait_until has_line log '^{"step":7,'
    stopped=$("$lab" at n2 pgrep -x tasuki)
    [ "$(wc -w <<<"$stopped")" -eq 1 ]
    "$lab" at n2 kill -STOP "$stopped"
    start=$SECONDS
    wait_until has_line out 'going on from step-0000000[48] with 3 nodes'
    wait_until has_line out 'resuming from'
    echo "# it went on after $((SECONDS - start)) s" >&3
    [ $((SECONDS - start)) -lt 90 ]
    run ! "$lab" at n2 kill -0 "$stopped"
    ends_clean 0
    grep -q 'a process does not run; rank 1 (n2) does not answer; ' out
    same_curve
    run ! "$lab" run pgrep -x tasuki
    wait_until no_steps
}

# srun is two processes, of which either ends the step when it is left alone. Without both the ranks would
# go on, beside those of the next step.
@test "a step whose srun was killed is ended by libslurm, and a new one goes on" {
    start_slow
    wait_until has_line log '^{"step":7,'
    "$lab" run pkill -KILL -x srun
    ends_clean 0
    grep -q 'warning: step [0-9]*[.][0-9]* went on without srun: ended' out
    grep -q 'going on from step-0000000[48] with 3 nodes' out
    same_curve
    wait_until no_steps
}

@test "without a node that vanished a new step goes on with those that are left" {
    start_slow
    wait_until has_line log '^{"step":7,'
    "$lab" off n2
    ends_clean 0
    "$lab" on n2
    grep -q 'node n2 is left out' out
    grep -q 'going on from step-0000000[48] with 2 nodes' out
    same_curve
    wait_until all_idle
}

# Slurm takes the node for good until SlurmdTimeout, here 300 seconds as it is everywhere. It is
# the first one, of rank 0; with fences by tree Slurm's PMIx would ask it for data in the next step.
@test "without a node whose cable is pulled a new step goes on, before Slurm has noticed" {
    export LAB_DIR=$BATS_TEST_TMPDIR/lab LAB_EXTRA=SlurmdTimeout=300 SLURM_PMIX_FENCE=tree
    "$lab" up
    start_slow
    wait_until has_line log '^{"step":7,'
    "$lab" run ip link set to-n1 down
    ends_clean 0
    grep -q 'warning: node n1 (rank 0) cannot be reached from n[23]: no answer for 20 sec' out
    grep -q 'node n1 is left out' out
    grep -q 'going on from step-0000000[48] with 2 nodes' out
    same_curve
}

# Nothing is said of checkpoints: the first one comes after a minute.
@test "without --checkpoint-every a run that loses a node goes on from a checkpoint, too" {
    TASUKI_TEST_DELAY=1:30000 allocate -N3 --no-kill -- "${training[@]}" --steps 100000 \
        --checkpoint c --log log >out 2>&1 3>&- &
    job=$!
    wait_until has_line log '"event":"checkpoint"'
    "$lab" off n2
    wait_until has_line out 'going on from step-0*[1-9][0-9]* with 2 nodes'
    wait_until has_line out 'resuming from'
    "$lab" run scancel -s USR1 --user=root
    "$lab" run pkill -USR1 -xf "$TASUKI train .*" --parent "$("$lab" run pgrep -x salloc)"
    ends_clean 75
    "$lab" on n2
    wait_until all_idle
}

# The same job again and again, as where it is requeued, and what ends it comes before its first
# step.
@test "allocations that bring no new checkpoint have an end, and those that Slurm takes away none" {
    cat >again <<'END'
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
os.execv(sys.argv[2], sys.argv[2:])
END
    cat >job <<'END'
for count in 0 1 2 3; do
    SLURM_RESTART_COUNT=$count python3 again "$@"
    echo "allocation $count: $?"
done
END
    run "$lab" run timeout 240 salloc -Q -N2 bash job SIGTERM "$TASUKI" train "${training[@]}" \
        --steps 6 --checkpoint c --max-restarts 1
    echo "$output"
    [ "$(grep -c '^allocation .: 75$' <<<"$output")" -eq 4 ]
    run "$lab" run timeout 240 salloc -Q -N2 bash job SIGUSR1 "$TASUKI" train "${training[@]}" \
        --steps 6 --checkpoint c --max-restarts 1
    echo "$output"
    [ "$(grep '^allocation' <<<"$output" | xargs)" = \
        "allocation 0: 75 allocation 1: 1 allocation 2: 75 allocation 3: 1" ]
    [ "$(grep -c 'giving up: 1 restarts brought no new checkpoint' <<<"$output")" -eq 2 ]
    [ ! -e c/.restarts ]
}

# In place of ranks: what they would see.
@test "ranks see all GPUs of their node, whatever sbatch was told of binding them" {
    export LAB_DIR=$BATS_TEST_TMPDIR/lab LAB_NODES=2 LAB_GPUS=2
    cat >srun <<END
#!/bin/bash
[ -n "\$TASUKI_FATE" ] || exec $(type -P srun) "\$@"
for ((n = 1; n < \$#; n++)); do [ "\${!n##*/}" != tasuki ] || break; done
exec $(type -P srun) "\${@:1:n-1}" sh -c 'echo "sees \$CUDA_VISIBLE_DEVICES"'
END
    chmod +x srun
    "$lab" up
    PATH=$PWD:$PATH SLURM_GPU_BIND=single:1 SLURM_CPU_BIND=quiet,mask_cpu:0x1 \
        SLURM_CPU_BIND_TYPE=mask_cpu: run allocate -N2 --exclusive --gpus-per-node=2 -- \
        "${training[@]}" --steps 6 --device cuda --precision float32 --checkpoint c
    echo "$output"
    [[ "$output" == *"2 nodes, 2 ranks on each"* ]]
    [ "$(grep -c '^sees 0,1$' <<<"$output")" -eq 4 ]
}

@test "restarts that bring no new checkpoint have an end" {
    start_slow --max-restarts 1
    while kill -0 $job 2>/dev/null; do
        # Ranks: a node that cannot even be asked would be left out.
        "$lab" at n2 sh -c 'for process in $(pgrep -x tasuki); do
            grep -qsz ^TASUKI_HEALTH= /proc/$process/environ || kill -9 $process
        done' || true
        sleep 0.3
    done
    ends_clean 1
    [ "$(grep -c 'going on from the start' out)" -eq 1 ]
    grep -q 'giving up: 1 restarts brought no new checkpoint' out
}

# Longer than srun, and libslurm, try to reach it; nodes are asked three times.
@test "a controller that is away while nodes are asked, and at the start of the step, is waited for" {
    cat >srun <<END
#!/bin/bash
be_away() {
    pkill -x slurmctld
    while pgrep -x slurmctld; do sleep 0.1; done
    (sleep \$1; exec setsid slurmctld) 3>&- &
} >/dev/null 2>&1 </dev/null
if [ -n "\$TASUKI_FATE" ]; then
    ! mkdir started 2>/dev/null || be_away 15
else
    ! mkdir asked 2>/dev/null || be_away 45
fi
exec $(type -P srun) "\$@"
END
    chmod +x srun
    PATH=$PWD:$PATH start_slow
    ends_clean 0
    [ -e asked ]
    [ -e started ]
    grep -q "warning: job .*: Slurm: .*: Unable to contact slurm controller.*; it is asked again, for" out
    grep -q 'warning: srun could not start the step' out
    [ "$(grep -c 'is left out\|restart ' out)" -eq 0 ]
    grep -q 'job .*: 3 nodes' out
    same_curve
}

@test "a job of which the controller knows no more is over at once" {
    start_slow --steps 200
    wait_until has_line log '^{"step":4,'
    "$lab" run pkill -KILL -x slurmctld
    wait_until sh -c '! "$1" run pgrep -x slurmctld' sh "$lab"
    rm -f "$LAB_DIR"/state/job_state*
    "$lab" run slurmctld
    ends_clean 1
    grep -q 'error: job [0-9]* is over: Slurm knows of it no more; a new one goes on' out
}
