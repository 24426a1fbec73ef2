# SPDX-License-Identifier: MIT
# Checkpoints that survive: how many stay, damaged ones, locks, space, written beside training.

load data.bash

setup() {
    ranks_setup
    DEMO=$srcdir/etc/demo
    RUN="$DEMO/digits.onnx --data $DEMO/digits-train.safetensors --batchnorm-samples 4
        --global-batch 32 --seed 5 --deterministic --precision float64 --launcher none --checkpoint $DIR/out"
}

teardown() {
    [ -z "${LOOP:-}" ] || drop_slow_disk
}

# train RANKS ARGUMENTS...
train() {
    local n=$1
    shift
    "$TASUKI" train $RUN --ranks-in-process "$n" "$@"
}

steps() {
    ls -A "$DIR/out" | xargs
}

# flip FILE: its lowest bit in the midst.
flip() {
    local at=$(($(wc -c <"$1") / 2))
    local byte=$(od -An -tu1 -j$at -N1 "$1")
    printf "\\$(printf %o $((byte ^ 1)))" | dd of="$1" bs=1 seek=$at conv=notrunc 2>/dev/null
}

@test "the newest checkpoints stay, as many as asked for, and those of another way" {
    mkdir -p "$DIR/out/step-00000100" "$DIR/out/step-other"
    train 1 -q --steps 5 --checkpoint-every 1
    [ "$(steps)" = "latest step-00000003 step-00000004 step-00000005 step-00000100 step-other" ]
    train 1 -q --steps 6 --checkpoint-every 1 --resume --keep 1
    [ "$(steps)" = "latest step-00000006 step-00000100 step-other" ]
    train 1 -q --steps 10 --checkpoint-every 1 --resume --keep 0
    [ "$(ls -d "$DIR"/out/step-000* | wc -l)" -eq 6 ]
}

# skips RANKS STEP REASON [ARGUMENTS...]: to the step before, with one warning.
skips() {
    local n=$1 step=$2 reason=$3
    rm -f "$DIR/log"
    run train "$n" --steps 6 --resume --log "$DIR/log"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c "warning: " <<<"$output")" -eq 1 ]
    [[ "$output" == *"out/step-$(printf %08d "$step") is damaged and left out: "*"$reason"* ]]
    [[ "$output" == *"resuming from $DIR/out/step-$(printf %08d $((step - 2)))"* ]]
    losses "$DIR/log" >"$DIR/rest"
    diff <(tail -n $((6 - step + 2)) "$DIR/whole") "$DIR/rest"
}

@test "a damaged checkpoint is left out, and the one before it gives the same curve" {
    "$TASUKI" train ${RUN% --checkpoint*} -q --steps 6 --log "$DIR/all"
    losses "$DIR/all" >"$DIR/whole"
    train 4 -q --steps 4 --checkpoint-every 2 --stages 2 --replicas 2,2
    mv "$DIR/out" "$DIR/good"
    [ "$(ls "$DIR"/good/step-00000004/*.safetensors | wc -l)" -eq 4 ]
    for file in shard-0000.safetensors shard-0003.safetensors; do
        rm -rf "$DIR/out"
        cp -r "$DIR/good" "$DIR/out"
        flip "$DIR/out/step-00000004/$file"
        skips 2 4 "$file: damaged: its checksum is"
    done
    rm -rf "$DIR/out"
    cp -r "$DIR/good" "$DIR/out"
    rm "$DIR/out/step-00000004/shard-0001.safetensors"
    skips 1 4 "shard-0001.safetensors: "
    rm -rf "$DIR/out"
    cp -r "$DIR/good" "$DIR/out"
    sed -i 's/"seed": *5/"seed": 4/' "$DIR/out/step-00000004/state.json"
    skips 1 4 "state.json: damaged: its checksum is"
    rm -rf "$DIR/out"
    cp -r "$DIR/good" "$DIR/out"
    rm "$DIR/out/step-00000004/state.json"
    skips 4 4 "state.json: "
}

@test "where no checkpoint is whole that is one error" {
    train 1 -q --steps 4 --checkpoint-every 2
    for step in 2 4; do
        truncate -s -1 "$DIR/out/step-0000000$step/shard-0000.safetensors"
    done
    for ranks in 1 2; do
        run train $ranks -q --steps 6 --resume
        echo "$output"
        [ "$status" -eq 1 ]
        [ "$(grep -c "error: " <<<"$output")" -eq 1 ]
        [[ "$output" == *"step-00000002/shard-0000.safetensors: damaged: it has "*" bytes, "* ]]
        [[ "$output" == *"; there is no checkpoint before it in "* ]]
    done
    [ "$(steps)" = "latest step-00000002 step-00000004" ]
    # One that is named is taken as it is, or not at all.
    cp -r "$DIR/out" "$DIR/other"
    for ranks in 1 2; do
        run "$TASUKI" train ${RUN%--checkpoint*} -q --steps 6 --ranks-in-process $ranks \
            --resume-from "$DIR/other/step-00000004"
        echo "$output"
        [ "$status" -eq 1 ]
        [ "$(grep -c "error: " <<<"$output")" -eq 1 ]
        [[ "$output" == *"other/step-00000004/shard-0000.safetensors: damaged: it has "* ]]
    done
    run "$TASUKI" export "$DIR/out/step-00000004" -o "$DIR/model.onnx"
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"step-00000004/shard-0000.safetensors: damaged: it has "* ]]
}

@test "without the file latest the newest whole step is gone on from, with one warning" {
    train 1 -q --steps 6 --checkpoint-every 2 --log "$DIR/whole"
    cp -r "$DIR/out" "$DIR/good"
    for ranks in 1 2; do
        rm -rf "$DIR/out" "$DIR/log"
        cp -r "$DIR/good" "$DIR/out"
        rm -r "$DIR/out/latest" "$DIR/out/step-00000006"
        run train $ranks -q --steps 6 --resume --log "$DIR/log"
        echo "$output"
        [ "$status" -eq 0 ]
        [ "$(grep -c "warning: " <<<"$output")" -eq 1 ]
        [[ "$output" == *"out: has no file latest: going on from "*"out/step-00000004"* ]]
        diff <(losses "$DIR/whole" | tail -n 2) <(losses "$DIR/log")
    done
    rm "$DIR/out/latest" "$DIR/out/step-00000006/state.json"
    truncate -s -1 "$DIR/out/step-00000004/shard-0000.safetensors"
    run train 2 -q --steps 6 --resume --log "$DIR/log"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c "warning: .* damaged and left out" <<<"$output")" -eq 2 ]
    [[ "$output" == *"going on from the newest step that is whole, "*"out/step-00000002"* ]]
    rm -r "$DIR/out/latest" "$DIR"/out/step-*/state.json
    run train 2 -q --steps 6 --resume
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"step-00000002/state.json: "*"; there is no checkpoint before it in "* ]]
    # So it is with another directory that is gone on from, where one's own has no steps.
    rm -r "$DIR"/out/step-* "$DIR/good/latest"
    run train 1 -q --steps 8 --resume --resume-from "$DIR/good"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"good: has no file latest: "*"good/step-00000006"* ]]
}

# Not even root may read it.
powerless() {
    setpriv --bounding-set -dac_override,-dac_read_search \
        --inh-caps -dac_override,-dac_read_search "$@"
}

@test "a checkpoint that cannot be read is not called damaged" {
    train 1 -q --steps 4 --checkpoint-every 2
    [ "$(id -u)" -ne 0 ] || powerless true || skip "needs setpriv"
    [ "$(id -u)" -eq 0 ] || powerless() { "$@"; }
    for file in shard-0000.safetensors state.json; do
        chmod 0 "$DIR/out/step-00000004/$file"
        for ranks in 1 2; do
            run powerless "$TASUKI" train $RUN --steps 4 -n --resume --ranks-in-process $ranks
            echo "$output"
            [ "$status" -eq 0 ]
            [ "$(grep -c "warning: " <<<"$output")" -eq 1 ]
            [[ "$output" == *"out/step-00000004 cannot be read and is left out: "* ]]
            [[ "$output" == *"step-00000004/$file: Permission denied; the one before it is "* ]]
        done
    done
}

# wait_for_step LOG PID [PATTERN]: until the log has a line of a step, or such a one.
wait_for_step() {
    for _ in $(seq 3000); do
        grep -q "${3:-^{\"step\"}" "$1" 2>/dev/null && return 0
        kill -0 "$2" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# lock KEY VALUE...: what the lock file says, but for these keys.
lock() {
    local keys="cluster job array_job array_task restart launcher" pairs="$*" key value text
    text='{"schema": "tasuki-lock", "version": 1, "host": "elsewhere", "boot": "b", "pid": 1,
        "started": 1, "space": 1, "since": "2026-01-02T03:04:05+0000"'
    for key in $keys; do
        value=
        [[ " $pairs " =~ " $key="([^ ]*)" " ]] && value=${BASH_REMATCH[1]}
        text+=", \"$key\": \"$value\""
    done
    mkdir -p "$DIR/out"
    rm -f "$DIR/out/lock"
    echo "$text}" >"$DIR/out/lock"
}

# refused TEXT: the run, and nothing is changed.
refused() {
    cp "$DIR/out/lock" "$DIR/lock"
    run train 1 -q --steps 2
    echo "$output"
    [ "$status" -eq 1 ]
    [ "$(grep -c "error: " <<<"$output")" -eq 1 ]
    [[ "$output" == *"$1"* ]]
    cmp "$DIR/out/lock" "$DIR/lock"
}

taken_over() {
    run train 1 --steps 2
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"out/lock: was of "$1": taken over"* ]]
    [ "$(steps)" = "latest step-00000002" ]
    rm -r "$DIR/out"
}

@test "a second run in a checkpoint directory is refused and names the first" {
    unset SLURM_JOB_ID
    "$TASUKI" train $RUN -q --steps 1000000 --log "$DIR/log" &
    pid=$!
    wait_for_step "$DIR/log" $pid
    refused "out: another run writes checkpoints here: process $pid on $(hostname), since "
    kill -KILL $pid
    wait $pid || true
    [ "$(stat -c %a "$DIR/out/lock")" = 600 ]
    taken_over "process $pid on $(hostname), since "*": that process is gone"
    # Of the same job it is given some time to end.
    rm -f "$DIR/log"
    export SLURM_JOB_ID=7
    "$TASUKI" train $RUN -q --steps 1000000 --log "$DIR/log" &
    pid=$!
    wait_for_step "$DIR/log" $pid
    (sleep 2; kill -KILL $pid) 3>&- &
    taken_over "job 7, process $pid on $(hostname), since "*": that process is gone"
    wait $pid || true
}

can_mount() {
    mkdir -p "$DIR/box"
    unshare -m mount -t tmpfs -o size=64k none "$DIR/box" 2>/dev/null ||
        skip "needs root and mount namespaces"
}

@test "a lock of a process that /proc hides holds while it is touched" {
    can_mount
    unset SLURM_JOB_ID
    "$TASUKI" train $RUN -q --steps 1000000 --log "$DIR/log" 3>&- &
    pid=$!
    wait_for_step "$DIR/log" $pid
    hidden() {
        run unshare -m sh -c 'mount -t tmpfs none "/proc/$0" && exec "$@"' $pid \
            "$TASUKI" train $RUN -q --steps 2
        echo "$output"
    }
    hidden
    [ "$status" -eq 1 ]
    [[ "$output" == *"out: another run writes checkpoints here: process $pid on "* ]]
    kill -STOP $pid
    touch -d '10 minutes ago' "$DIR/out/lock"
    hidden
    kill -KILL $pid
    wait $pid || true
    [ "$status" -eq 0 ]
    [ "$(steps)" = "latest step-00000002" ]
}

@test "locks of other hosts hold while they are touched, but those of a launcher's steps" {
    lock job=12 array_job=10 array_task=2
    refused "job 12 (task 2 of array 10), process 1 on elsewhere, since 2026-01-02T03:04:05+0000"
    lock job=12 launcher=L
    SLURM_JOB_ID=12 TASUKI_STARTED_BY=L taken_over "job 12, "*": it is an earlier step of this run"
    # Another step beside this one, that lives; and one that lives no more.
    lock job=12
    (sleep 2; touch "$DIR/out/lock") 3>&- &
    SLURM_JOB_ID=12 refused "job 12, process 1 on elsewhere"
    lock job=12 array_job=10 array_task=2
    touch -d '2 minutes ago' "$DIR/out/lock"
    SLURM_JOB_ID=12 SLURM_ARRAY_TASK_ID=2 taken_over "job 12 (task 2 of array 10), "*": it is an earlier run of this job"
    lock job=12
    SLURM_JOB_ID=12 SLURM_RESTART_COUNT=1 taken_over "job 12, "*": this job was requeued since"
    lock job=12
    SLURM_JOB_ID=13 refused "job 12, process 1 on elsewhere"
    lock job=12 cluster=other
    SLURM_JOB_ID=12 SLURM_CLUSTER_NAME=this refused "job 12, process 1 on elsewhere"
    touch -d '10 minutes ago' "$DIR/out/lock"
    taken_over "job 12, "*": it has not been touched for minutes"
    lock
    truncate -s 20 "$DIR/out/lock"
    refused "out/lock:1: "
}

@test "a run whose lock was taken away writes no checkpoint" {
    "$TASUKI" train $RUN -q --steps 1000000 --log "$DIR/log" 2>"$DIR/said" &
    pid=$!
    wait_for_step "$DIR/log" $pid
    lock
    kill -TERM $pid
    code=0
    wait $pid || code=$?
    cat "$DIR/said"
    [ "$code" -eq 1 ]
    grep -q "out/lock: is no longer of this run" "$DIR/said"
    [ "$(steps)" = lock ]
}

@test "before the end of its job, if it is told that, a run writes a checkpoint and ends" {
    unset SLURM_JOB_ID
    TASUKI_JOB_END=$(($(date +%s) + 8)) run timeout 60 "$TASUKI" train $RUN --steps 100000000
    echo "$output"
    [ "$status" -eq 75 ]
    [ "$(grep -c ' seconds are left of the job.s limit: a checkpoint is asked for' <<<"$output")" -eq 1 ]
    [ -e "$DIR/out/latest" ]
    rm -r "$DIR/out"
    TASUKI_JOB_END=$(date +%s) run train 2 --stages 2 --steps 100000000
    [ "$status" -eq 75 ]
    rm -r "$DIR/out"
    TASUKI_JOB_END=$(($(date +%s) + 3600)) run train 1 --steps 4
    [ "$status" -eq 0 ]
    [[ "$output" != *limit* ]]
    TASUKI_JOB_END=soon run train 1 --steps 4
    [ "$status" -eq 2 ]
    [[ "$output" == *'TASUKI_JOB_END: expected a number of seconds, got "soon"'* ]]
    TASUKI_JOB_END=$(($(date +%s) + 3600)).5 run train 1 --steps 4
    [ "$status" -eq 2 ]
    # Seconds that are left.
    TASUKI_JOB_END=600 run train 1 --steps 4
    [ "$status" -eq 2 ]
    [[ "$output" == *'TASUKI_JOB_END: expected seconds since 1970 (date +%s), got "600"'* ]]
}

@test "where a signal at the limit leaves too little time, that is said once" {
    unset SLURM_JOB_ID
    export TASUKI_TEST_WRITE_DELAY=1.5
    TASUKI_JOB_NOTICE=1 run train 1 --steps 8 --checkpoint-every 2
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'warning: a step and a checkpoint take [1-9].*, and are asked for 1 s before the time limit: unless SIGUSR1 comes [0-9]* s before it already, let it, by --signal=USR1@[0-9]* of sbatch, salloc or srun' <<<"$output")" -eq 1 ]
    rm -r "$DIR/out"
    TASUKI_JOB_NOTICE=60 run train 1 --steps 8 --checkpoint-every 2
    [ "$status" -eq 0 ]
    [[ "$output" != *warning* ]]
}

@test "paths name the job and the task of an array" {
    RUN="${RUN% --checkpoint*} -q --steps 1 --checkpoint $DIR/out-%A_%a --log $DIR/log-%j%%"
    SLURM_JOB_ID=12 SLURM_ARRAY_JOB_ID=10 SLURM_ARRAY_TASK_ID=2 "$TASUKI" train $RUN
    [ -d "$DIR/out-10_2/step-00000001" ]
    [ -f "$DIR/log-12%" ]
    mkdir "$DIR/out"
    RUN="${RUN/-%A_%a/}"
    lock job=12 array_job=10 array_task=2
    SLURM_JOB_ID=22 SLURM_ARRAY_JOB_ID=20 SLURM_ARRAY_TASK_ID=2 run "$TASUKI" train $RUN
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"writes checkpoints here: job 12 (task 2 of array 10), process 1 on elsewh"* ]]
    RUN="${RUN/--checkpoint $DIR\/out/--checkpoint $DIR/out-%A_%a}"
    run env -u SLURM_ARRAY_TASK_ID SLURM_JOB_ID=12 "$TASUKI" train $RUN
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"--checkpoint $DIR/out-%A_%a: %a: this is no task of an array"* ]]
    run env -u SLURM_JOB_ID SLURM_ARRAY_JOB_ID=1 SLURM_ARRAY_TASK_ID=2 "$TASUKI" train $RUN
    [ "$status" -eq 2 ]
    [[ "$output" == *"--checkpoint $DIR/out-%A_%a: %A: this is no job of Slurm, "* ]]
}

# same_files A B: tensors and what is said of them, but for the time that a plan took to measure.
same_files() {
    [ "$(cd "$1" && ls)" = "$(cd "$2" && ls)" ]
    for file in "$1"/*.safetensors; do
        cmp "$file" "$2/${file##*/}"
    done
    diff <(grep -A1000 '"files"' "$1/state.json") <(grep -A1000 '"files"' "$2/state.json")
}

# A run that ends at a step waits for its checkpoint; one that goes on is some steps further when
# the first byte is written.
@test "a checkpoint written while steps go on has the bytes of one that was waited for" {
    measured "$DIR/cost.json" --optimizer adam --precision float64
    RUN="$RUN --cost $DIR/cost.json"
    for plan in "1" "4 --stages 2 --replicas 2,2 --zero" "2 --stages 2 --schedule 2bw"; do
        rm -rf "$DIR/out" "$DIR/waited"
        train $plan -q --optimizer adam --ema 0.9 --lr-length 20 --steps 4
        mv "$DIR/out" "$DIR/waited"
        TASUKI_TEST_WRITE_DELAY=0.5 train $plan -q --optimizer adam --ema 0.9 --lr-length 20 \
            --steps 8 --checkpoint-every 4 --log "$DIR/log"
        [ "$(steps)" = "latest step-00000004 step-00000008" ]
        same_files "$DIR/waited/step-00000004" "$DIR/out/step-00000004"
        # Step 5 was done before it was complete.
        awk '/^{"step":5,/ { five = 1 } /"event":"checkpoint","step":4,/ { later = five }
            END { exit !later }' "$DIR/log"
    done
}

@test "a signal while a slow disk takes a checkpoint ends the run with a whole one" {
    local newest pid code=0
    TASUKI_TEST_WRITE_DELAY=1 "$TASUKI" train $RUN --ranks-in-process 2 --stages 2 -q \
        --steps 1000000 --checkpoint-every 5 --log "$DIR/log" 3>&- &
    pid=$!
    wait_for_step "$DIR/log" $pid '^{"step":6,'
    kill -TERM $pid
    wait $pid || code=$?
    [ "$code" -eq 75 ]
    [ -d "$DIR/out/step-00000005" ]
    newest=$(sed -E 's/^step-0*//' "$DIR/out/latest")
    [ "$newest" -ge 6 ]
    train 2 --stages 2 -q --steps $((newest + 2)) --resume --log "$DIR/log"
    rm -rf "$DIR/out"
    train 2 --stages 2 -q --steps $((newest + 2)) --log "$DIR/whole"
    diff <(losses "$DIR/log") <(losses "$DIR/whole")
}

THROTTLE=/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device

# slow_disk BYTES: a file system at $DIR/slow whose device takes so many a second.
slow_disk() {
    [ -w $THROTTLE ] || skip "no $THROTTLE, by which a disk is made slow"
    truncate -s 64m "$DIR/disk"
    mkfs.ext4 -q "$DIR/disk"
    mkdir "$DIR/slow"
    LOOP=$(losetup -f --show "$DIR/disk") || skip "no loop devices"
    mount "$LOOP" "$DIR/slow"
    echo "$(stat -c %Hr:%Lr "$LOOP") $1" >$THROTTLE
}

drop_slow_disk() {
    echo "$(stat -c %Hr:%Lr "$LOOP") 0" >$THROTTLE
    umount "$DIR/slow"
    losetup -d "$LOOP"
}

# wait_for_file PROCESS FILE: until it is, while the process lives.
wait_for_file() {
    until [ -e "$2" ]; do
        kill -0 "$1"
        sleep 0.02
    done
}

# A checkpoint here takes it some three seconds.
@test "a slow disk holds up no step, and what it has half when a run is killed is not gone on from" {
    local pid
    slow_disk 100000
    train 2 --stages 2 -q --steps 24 --log "$DIR/whole"
    rm -r "$DIR/out"
    RUN=${RUN/"$DIR/out"/"$DIR/slow/out"}
    train 2 --stages 2 -q --steps 8 --checkpoint-every 4 --log "$DIR/log"
    [ "$(ls -A "$DIR/slow/out" | xargs)" = "latest step-00000004 step-00000008" ]
    awk '/^{"step":5,/ { five = 1 } /"event":"checkpoint","step":4,/ { later = five }
        END { exit !later }' "$DIR/log"
    diff <(losses "$DIR/log") <(losses "$DIR/whole" | head -n 8)
    "$TASUKI" train $RUN --ranks-in-process 2 --stages 2 -q --steps 1000000 --resume \
        --checkpoint-every 4 --log "$DIR/more" 3>&- &
    pid=$!
    wait_for_file $pid "$DIR/slow/out/.step-00000012.tmp"
    sleep 1
    kill -9 $pid
    wait $pid || true
    ls -lR "$DIR/slow/out"
    [ ! -e "$DIR/slow/out/step-00000012" ]
    run train 2 --stages 2 --steps 24 --resume --log "$DIR/rest"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"resuming from $DIR/slow/out/step-00000008"* ]]
    diff <(losses "$DIR/rest") <(losses "$DIR/whole" | tail -n 16)
    [ ! -e "$DIR/slow/out/.step-00000012.tmp" ]
}

# After the first checkpoint nothing can be written any more.
@test "a disk that fills, or cannot be written, ends all ranks with one error at a later step" {
    can_mount
    has_mpi || skip "no MPI"
    fill='mount -t tmpfs -o size=16m none "$1" || exit 99; shift; "$@" & pid=$!
        for _ in $(seq 3000); do
            grep -q "\"event\":\"checkpoint\"" "$DIR/log" 2>/dev/null && break
            kill -0 $pid 2>/dev/null || break
            sleep 0.1
        done
        for _ in $(seq 100); do
            eval "$spoil" && break
            sleep 0.1
        done
        wait $pid; code=$?; ls -A "$DIR/box/out" >"$DIR/left"; exit $code'
    for spoil in '! cat /dev/zero >"$DIR/box/fill" 2>/dev/null' \
        'mount -o remount,ro "$DIR/box" 2>/dev/null'; do
        for launch in "" "mpirun -n 3"; do
            rm -f "$DIR/log"
            # Nothing is open for writing in between, else it cannot be made read-only.
            TASUKI_TEST_WRITE_DELAY=0.3 DIR=$DIR spoil=$spoil run timeout 120 unshare -m sh -c "$fill" sh "$DIR/box" $launch \
                "$TASUKI" train ${RUN%--checkpoint*} -q --steps 1000000 --checkpoint-every 20 \
                --checkpoint "$DIR/box/out" --log "$DIR/log"
            echo "$output"
            cat "$DIR/left"
            [ "$status" -eq 1 ]
            [ "$(echo "$output" | grep '^tasuki: .*error: ' | sort -u | wc -l)" -eq 1 ]
            echo "$output" | grep -Eqi 'no space left|read-only'
            grep -q '"event":"failed".*"usage":{"nodes":1,"gpus":0,"node_hours":' "$DIR/log"
            # What was complete stays.
            grep -qx latest "$DIR/left"
            grep -q '^step-' "$DIR/left"
        done
    done
}

# A checkpoint here has some 250 kB.
@test "a disk too small for all checkpoints is a warning with numbers" {
    can_mount
    for run in "1000k 3 1" "1000k 2 0" "1000k 0 1"; do
        set -- $run
        run timeout 120 unshare -m sh -c 'mount -t tmpfs -o "$1" none "$2" && shift 2 && "$@"' \
            sh "size=$1" "$DIR/box" "$TASUKI" train ${RUN%--checkpoint*} --steps 20 \
            --checkpoint-every 1 --keep "$2" --checkpoint "$DIR/box/out"
        echo "$output"
        [ "$(grep -c "warning: .*box/out: up to .* more checkpoints of .* MB take .* free" \
            <<<"$output")" -eq "$3" ]
        [ "$status" -eq "$3" ]      # and it was right
    done
}

# on_tmpfs OPTIONS ARGUMENTS...: 20 steps, with checkpoints on such a file system.
on_tmpfs() {
    local options=$1
    shift
    run timeout 120 unshare -m sh -c 'mount -t tmpfs -o "$1" none "$2" && shift 2 && "$@"' sh \
        "$options" "$DIR/box" "$TASUKI" train ${RUN%--checkpoint*} --steps 20 \
        --checkpoint "$DIR/box/out" "$@"
    echo "$output"
}

# The file system's root is one, the directory of checkpoints and its lock are two more.
@test "a file system with too few inodes for a checkpoint is an error with numbers, before step 1" {
    can_mount
    on_tmpfs nr_inodes=6 --ranks-in-process 2 --stages 2 --checkpoint-every 5
    [ "$status" -eq 1 ]
    [[ "$output" =~ box/out:\ no\ space\ left\ for\ one\ checkpoint:\ it\ takes\ 4\ files,\ [0-3]\ are\ free ]]
    [ "$(grep -c 'no space left' <<<"$output")" -eq 1 ]
    [[ "$output" != *": train "* ]]
}

@test "inodes for fewer checkpoints than are to stay are a warning with numbers" {
    can_mount
    on_tmpfs nr_inodes=12 --checkpoint-every 1 --keep 3
    [[ "$output" =~ warning:\ .*box/out:\ up\ to\ 4\ more\ checkpoints\ of\ 3\ files\ take\ 12\ files,\ [0-9]\ are\ free\ \(--keep,\ --checkpoint-every\) ]]
    [ "$(grep -c "warning: .*more checkpoints" <<<"$output")" -eq 1 ]
    [ "$status" -eq 1 ]         # and it was right
    on_tmpfs nr_inodes=40 --checkpoint-every 1 --keep 3
    [ "$status" -eq 0 ]
    [[ "$output" != *"more checkpoints"* ]]
}

@test "where quotas cannot be asked that is said to who asks for more words" {
    can_mount
    setpriv --reuid=65534 --regid=65534 --clear-groups "$TASUKI" --version >/dev/null 2>&1 ||
        skip "another user cannot run it here"
    run timeout 120 unshare -m sh -c 'mount -t tmpfs -o mode=1777 none "$1" && cd "$1" && shift &&
        exec setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ "$@"' sh "$DIR/box" \
        "$TASUKI" train -v ${RUN%--checkpoint*} --steps 2 --checkpoint out
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"out: quotas of this file system (tmpfs) cannot be asked: what it shows as free counts"* ]]
}

# begun LOG: the steps after which checkpoints began.
begun() {
    sed -nE 's/.*"event":"checkpoint","step":([0-9]*).*/\1/p' "$1" | xargs
}

# Of a run until three have begun, each when the one before is written: the first is after step 10.
begins_again() {
    local pid code=0
    rm "$DIR/log"
    "$TASUKI" train $RUN --ranks-in-process 2 --stages 2 -q --steps 1000000 --log "$DIR/log" "$@" 3>&- &
    pid=$!
    for _ in $(seq 3000); do
        [ "$(begun "$DIR/log" 2>/dev/null | wc -w)" -lt 3 ] || break
        kill -0 $pid
        sleep 0.1
    done
    kill -TERM $pid
    wait $pid || code=$?
    [ $code -eq 75 ]
    [[ "$(begun "$DIR/log")" = "10 "*" "* ]]
}

@test "checkpoints come as often as their cost and the time between failures say" {
    train 2 -q --stages 2 --steps 30 --mtbf 1e9 --log "$DIR/log"
    [ "$(begun "$DIR/log")" = "10 30" ]
    begins_again --mtbf 1e-9
    # Steps that flow are at a pause where they are to be.
    begins_again --mtbf 1e-9 --schedule 2bw
    train 1 -q --steps 6 --mtbf 1e-9 --checkpoint-every 3 --log "$DIR/log"
    [ "$(begun "$DIR/log")" = "3 6" ]
}

@test "a short run of which nothing is said writes a checkpoint at the end alone" {
    train 2 -q --stages 2 --steps 30 --log "$DIR/log"
    [ "$(begun "$DIR/log")" = "30" ]
    train 2 -q --stages 2 --steps 30 --mtbf 0 --log "$DIR/log"
    [ "$(begun "$DIR/log")" = "30" ]
}

@test "a checkpoint that is named is gone on from, unless there is one of one's own" {
    train 1 -q --steps 4 --checkpoint-every 2
    mv "$DIR/out" "$DIR/other"
    go="$TASUKI train $RUN -q --log $DIR/log"
    steps_done() {
        sed -nE 's/^\{"step":([0-9]*),.*/\1/p' "$DIR/log" | xargs
    }
    $go --steps 3 --resume-from "$DIR/other/step-00000002"
    [ "$(steps_done)" = 3 ]
    [ "$(steps)" = "latest step-00000003" ]
    rm "$DIR/log"
    $go --steps 5 --resume --resume-from "$DIR/other"
    [ "$(steps_done)" = "4 5" ]
    rm -r "$DIR/log" "$DIR/out"
    $go --steps 5 --resume --resume-from "$DIR/other"
    [ "$(steps_done)" = 5 ]
    [ "$(ls "$DIR/other" | xargs)" = "latest step-00000002 step-00000004" ]
}

# bytes RANK: of the files that it has written of a checkpoint.
bytes() {
    cat "$DIR"/out/step-*/shard-"$1"*.safetensors | wc -c
}

# Two large layers, two small ones.
uneven() {
    "$builddir/tests/make_onnx" "$DIR/net.onnx" <<'TEXT'
input image float batch,1,8,8
node Flatten image -> x
init a float 64,8192
node Gemm x,a -> a1
node Relu a1 -> a2
init b float 8192,64
node Gemm a2,b -> b1
node Relu b1 -> b2
init c float 64,64
node Gemm b2,c -> c1
node Relu c1 -> c2
init d float 64,10
node Gemm c2,d -> y
output y
TEXT
}

# train_uneven RANKS ARGUMENTS...: threads of one process, or what LAUNCH starts.
train_uneven() {
    local n=$1
    shift
    [ -n "${LAUNCH:-}" ] || set -- --launcher none --ranks-in-process "$n" "$@"
    ${LAUNCH:+$LAUNCH -n "$n"} "$TASUKI" train "$DIR/net.onnx" -q --seed 5 --global-batch 32 \
        --data "$DEMO/digits-train.safetensors" --deterministic --precision float64 \
        --optimizer adam "$@"
}

# evened RANKS PLAN...: a checkpoint of so many ranks, from which 2 others go on.
evened() {
    local n=$1 total r
    shift
    echo "$n ranks $*"
    rm -rf "$DIR/out"
    train_uneven "$n" "$@" --steps 3 --checkpoint "$DIR/out" --log "$DIR/part"
    total=$(cat "$DIR"/out/step-*/shard-* | wc -c)
    for ((r = 0; r < n; r++)); do
        echo "rank $r: $(bytes 000$r) of $total"
        [ "$(bytes 000$r)" -le $((total / n + (1 << 20) + 8192)) ]
    done
    LAUNCH= train_uneven 2 --stages 2 --steps 6 --checkpoint "$DIR/out" --resume --log "$DIR/part"
    diff <(losses "$DIR/whole") <(losses "$DIR/part")
}

@test "all ranks write as many bytes, whatever their stages have" {
    uneven
    train_uneven 1 --steps 6 --log "$DIR/whole"
    evened 6 --stages 2
    evened 6 --stages 3 --replicas 1,1,2 --zero
    evened 6 --stages 3 --pipelines 2
    evened 6 --stages 1 --pipelines 2 --zero
    evened 6 --stages 4 --schedule interleaved
    has_mpi || return 0
    LAUNCH=mpirun evened 4 --stages 3
}
