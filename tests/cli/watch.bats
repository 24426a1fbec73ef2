# SPDX-License-Identifier: MIT
# tasuki watch, and what train writes for it and for node_exporter.

load data.bash

setup() {
    ranks_setup
    DEMO=$srcdir/etc/demo
    MODEL="$DEMO/digits.onnx --data $DEMO/digits-train.safetensors --batchnorm-samples 4"
    cd "$DIR"
}

start='{"event":"start","first_step":1,"steps":9,"model":"m.onnx","ranks":2,"replicas":[2]}'

# The value of a key of the summary: numbers and words.
value() {
    "$TASUKI" watch "$1" --format json >summary || true
    sed -nE "s/^  \"$2\": \"?([^\",]*)\"?,?$/\1/p" summary
}

@test "a summary says where a run is, on one rank and on three" {
    "$TASUKI" train $MODEL --global-batch 24 --steps 40 -q --log log --report-every 0.001 \
        --test "$DEMO/digits-test.safetensors" --checkpoint out
    run "$TASUKI" watch log
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"tasuki watch log: done"* ]]
    [[ "$output" == *"step 40 of 40"* ]]
    [[ "$output" == *"checkpoint step 40 in out"* ]]
    [[ "$output" == *"step 40: test loss "*", accuracy "* ]]
    [[ "$output" == *"samples/s, step "*", predicted "* ]]
    grep -q '^{"event":"ranks","step":' log
    [ "$(value log step)" -eq 40 ]
    [ "$(value log malformed)" -eq 0 ]
    has_mpi || return 0
    mpirun -n 3 "$TASUKI" train $MODEL --global-batch 24 --steps 40 -q --log 3 --report-every 0.001 \
        --stages 2 --replicas 2,1
    run "$TASUKI" watch 3
    echo "$output"
    grep -qE '^ +0 +2 .* %' <<<"$output"
    grep -qE '^ +1 +1 .* %' <<<"$output"
    # The last column is the most that a rank of the stage was allotted, as the log has it.
    grep -qE '^stage ranks .* memory$' <<<"$output"
    for stage in 0 1; do
        bytes=$(grep '^{"event":"memory"' 3 | sed 's/.*"peak":\[\([0-9,]*\)\].*/\1/' | tr , ' ' |
            awk -v stage=$stage '{ print (stage ? $3 : $1 > $2 ? $1 : $2) }')
        [ "$bytes" -gt 0 ]
        grep -E "^ +$stage +[12] " <<<"$output" | awk -v bytes="$bytes" '
            { unit = $NF == "KiB" ? 1024 : $NF == "MiB" ? 1048576 : $NF == "B" ? 1 : 0
              shown = $(NF - 1) * unit
              exit !(unit && shown > 0.99 * bytes && shown < 1.01 * bytes) }'
        [ "$("$TASUKI" watch 3 --format json | grep -c "^ *\"memory\": $bytes\(\.0\)\?,")" -ge 1 ]
    done
    # Each report has each rank once.
    grep '^{"event":"ranks"' 3 | head -n 1 | grep -o '"stage":[01]' | tr '\n' ' ' |
        grep -qx '"stage":0 "stage":0 "stage":1 '
}

@test "reports change nothing of the curve, and 0 writes none" {
    curve 1 1 $MODEL --global-batch 8 --steps 30 --report-every 0.0001
    curve 2 1 $MODEL --global-batch 8 --steps 30 --report-every 0
    grep -q '"event":"ranks"' 1
    ! grep -q '"event":"ranks"' 2 || false
    diff <(losses 1) <(losses 2)
    has_mpi || return 0
    for schedule in 1f1b 2bw; do
        curve 3 2 $MODEL --global-batch 8 --steps 30 --report-every 0.0001 --stages 2 \
            --schedule $schedule
        curve 4 2 $MODEL --global-batch 8 --steps 30 --report-every 0 --stages 2 \
            --schedule $schedule
        grep -q '"event":"ranks"' 3
        diff <(losses 3) <(losses 4)
    done
}

# Evaluations, checkpoints and the end read what is under way.
@test "reports of so many steps come at multiples, whatever is between steps" {
    local every
    for every in 1 2 3; do
        curve log 1 $MODEL --global-batch 8 --steps 13 --ranks-in-process 2 --report-every ${every}steps \
            --test "$DEMO/digits-test.safetensors" --eval-every 5 --checkpoint out --checkpoint-every 7
        sed -nE 's/^\{"event":"ranks","step":([0-9]+),"steps":([0-9]+),.*/\1 \2/p' log >reports
        cat reports
        diff reports <(seq -f "%g $every" $every $every 13)
        rm -r out
    done
}

# trains_until PATTERN LOG ARGUMENTS...: a run without checkpoints, ended when its log has such a line.
trains_until() {
    local pattern=$1 log=$2 pid
    shift 2
    "$TASUKI" train "$@" --steps 1000000 -q --log "$log" 3>&- &
    pid=$!
    for _ in $(seq 3000); do
        ! grep -qs "$pattern" "$log" || break
        kill -0 $pid
        sleep 0.1
    done
    kill -TERM $pid
    ! wait $pid || false
    grep -q "$pattern" "$log"
}

# Rank 0 waits while rank 1 sleeps in instructions: nothing moves, and in the second run for too long.
slow_runs() {
    local slow="$MODEL --global-batch 8 --ranks-in-process 2 --stages 2 --micro-batches 1"
    export TASUKI_TEST_DELAY=387:1500000
    trains_until '"event":"moves"' slow $slow --warn-after 1
    run "$TASUKI" train $slow -q --steps 1 --log stuck --deadline 1
    [ "$status" -eq 1 ]
}

# A pixel of a sample of step 5 is not finite. Of many short steps one is slow on one of two ranks.
spoilt_runs() {
    local size
    cp "$DEMO/digits-train.safetensors" spoilt
    chmod u+w spoilt
    size=$((8 + $(od -An -tu8 -N8 spoilt)))
    printf '\0\0\200\177' | dd of=spoilt bs=1 seek=$((size + 70 * 256 + 20)) conv=notrunc status=none
    bad="$DEMO/digits.onnx --data spoilt --batchnorm-samples 4 --global-batch 16 --no-shuffle"
    run "$TASUKI" train $bad -q --steps 6 --log stopped
    [ "$status" -eq 1 ]
    "$TASUKI" train $bad -q --steps 9 --log back --on-nan rollback --checkpoint saved --checkpoint-every 2
    trains_until '"event":"stragglers"' skipped $bad --on-nan skip --ranks-in-process 2 --replicas 2 \
        --report-every 1steps
}

@test "each line of a log is as tasuki-log(5) says, which has no key that no line has" {
    need_python
    own_cache
    local test="--test $DEMO/digits-test.safetensors"
    curve all 1 $MODEL --global-batch 24 --steps 4 --ranks-in-process 3 --trial 2 --report-every 2steps \
        --checkpoint out --checkpoint-every 2 $test --eval-every 2 --clip-norm 1 --loss-scale 1024 \
        --stage-to "$DIR" --trace trace
    SLURM_JOB_ID=12 SLURM_CLUSTER_NAME=far SLURM_ARRAY_JOB_ID=10 SLURM_ARRAY_TASK_ID=2 \
        curve all 1 $MODEL --global-batch 24 --steps 8 --launcher none --report-every 3steps \
        --checkpoint out --resume $test --eval-ema --ema 0.9
    python3 "$srcdir/tests/cli/make-data.py" tokens t.bin 400 7 header
    curve words 1 "$srcdir/tests/data/model/transformer/model.onnx" --global-batch 8 --steps 2 \
        --data t.bin --test t.bin
    disk=$(mktemp -d -p /dev/shm || mktemp -d)
    trains_until '"event":"staged"' copied $MODEL --global-batch 24 --stage-to "$disk"
    rm -r "$disk"
    spoilt_runs
    slow_runs
    python3 "$srcdir/tests/cli/log-lines.py" "$srcdir/man" all words copied stopped back skipped slow stuck >unseen
    cat unseen
    [ "$(sort unseen | xargs)" = "end.fallbacks end.tensor_cores" ]
}

@test "a run that failed or kept nothing is exit status 3" {
    printf '%s\n%s\n' "$start" '{"event":"failed","error":"rank 1 died"}' >log
    run "$TASUKI" watch log
    [ "$status" -eq 3 ]
    [[ "$output" == *"failed: rank 1 died"* ]]
    printf '%s\n%s\n' "$start" '{"event":"end","outcome":"lost"}' >log
    run "$TASUKI" watch --once log
    [ "$status" -eq 3 ]
    printf '%s\n%s\n' "$start" '{"event":"end","outcome":"stopped"}' >log
    run "$TASUKI" watch --once log
    [ "$status" -eq 0 ]
    [[ "$output" == *": stopped"* ]]
}

@test "a signal without checkpoint, and an error in the run, are in the log" {
    trains_until '^{"step"' log $MODEL --global-batch 8
    grep -q '"outcome":"lost"' log
    grep -q '"event":"failed","error":"stopped by a signal' log
    run "$TASUKI" watch log
    [ "$status" -eq 3 ]
}

@test "a log that can no longer be written is a warning, and the run ends as it would" {
    run "$TASUKI" train $MODEL --global-batch 24 --steps 3 -q --log /dev/full
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c "warning: " <<<"$output")" -eq 1 ]
    [[ "$output" == *"/dev/full: No space left on device; the run goes on without its log"* ]]
    mkfifo pipe
    head -n 1 pipe >first 3>&- &
    run "$TASUKI" train $MODEL --global-batch 8 --steps 2000 -q --log pipe
    echo "$output"
    wait $!
    [ "$status" -eq 0 ]
    [[ "$output" == *"pipe: Broken pipe; the run goes on without its log"* ]]
    grep -q '"event":"start"' first
}

@test "a pipe without a reader is refused, and one that is read has all of the log" {
    mkfifo pipe
    for option in log prometheus; do
        run timeout 60 "$TASUKI" train $MODEL --global-batch 24 --steps 1 -q --$option pipe
        echo "$output"
        [ "$status" -eq 1 ]
        [ "$(grep -c "error: " <<<"$output")" -eq 1 ]
        [[ "$output" == *"error: --$option pipe: is a pipe"* ]]
    done
    cat pipe >all 3>&- &
    "$TASUKI" train $MODEL --global-batch 24 --steps 3 -q --log pipe
    wait $!
    [ "$(value all step)" -eq 3 ]
}

@test "a log that is not there, a number, and no log" {
    run "$TASUKI" watch nothing
    [ "$status" -eq 1 ]
    [[ "$output" == *"nothing: No such file"* ]]
    TASUKI_PKGLIBDIR=$PWD run "$TASUKI" watch 4711      # a job, and nobody to ask
    [ "$status" -eq 1 ]
    [[ "$output" == *"job 4711: tasuki-slurm.so is not installed"* ]]
    run "$TASUKI" watch
    [ "$status" -eq 2 ]
}

@test "lines that are none are counted and named, and the rest is shown" {
    printf '%s\nnonsense\n%s\n{"step":3,"loss":' "$start" '{"step":2,"loss":0.5}' >log
    run "$TASUKI" watch log
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"1 malformed line in the log, the first is line 2"* ]]
    [[ "$output" == *"step 2 of 9"* ]]
}

# Rank 1 beside the median of its stage, rank 2, which is alone in its own, beside its forecast.
@test "stragglers are shown with rank, node and factor, until a report in which they are none" {
    local begun=${start%\}}',"hosts":["n1","n2","n3"]}'
    rank() { printf '{"stage":%s,"samples":4,"compute":%s}' "$@"; }
    ranks() { printf '{"event":"ranks","seconds":10,"ranks":[%s,%s,%s]}\n' "$@"; }
    {
        echo "${begun/'"ranks":2,"replicas":[2]'/'"ranks":3,"replicas":[2,1]'}"
        ranks "$(rank 0 2)" "$(rank 0 3)" "$(rank 1 6)"
        printf '{"event":"stragglers","step":4,"seconds":10,"ranks":[%s,%s]}\n' \
            '{"rank":1,"node":"n2","stage":0,"factor":1.5,"beyond":"stage","compute":3}' \
            '{"rank":2,"node":"n3","stage":1,"factor":1.75,"beyond":"forecast","compute":6}'
    } >log
    run "$TASUKI" watch log --once
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep '^straggler' <<<"$output")" = "\
straggler: rank 2 (n3) computes 1.75 times as long as stage 1's forecast
straggler: rank 1 (n2) computes 1.50 times as long as stage 0's median" ]
    [ "$("$TASUKI" watch log --format json | grep -c '"straggler": true')" -eq 2 ]
    ranks "$(rank 0 2)" "$(rank 0 2)" "$(rank 1 6)" >>log
    run "$TASUKI" watch log --once
    echo "$output"
    ! grep '^straggler' <<<"$output" || false
}

# A terminal of 24 rows and 80 columns, of which 'screen' gets what is written.
on_terminal() {
    command -v script >/dev/null || skip "no script"
    timeout 120 script -qefc "stty rows 24 cols 80; exec $*" screen </dev/null >/dev/null 3>&-
}

@test "on a terminal it waits for the log, follows it to its end and exits" {
    command -v script >/dev/null || skip "no script"
    on_terminal "'$TASUKI' watch log" &
    pid=$!
    wait_until() {
        for _ in $(seq 600); do
            grep -qs "$1" screen && return 0
            sleep 0.1
        done
        cat screen
        return 1
    }
    wait_until "the log is not there yet"
    echo "$start" >log
    wait_until "starting"
    echo '{"step":1,"epoch":1,"loss":0.5,"seconds":1,"samples_per_second":8}' >>log
    wait_until "step 1 of 9"
    wait_until "0:08 left"
    echo '{"event":"end","outcome":"done"}' >>log
    wait $pid
    grep -q ": done" screen
    # The cursor and the first screen are back.
    grep -q "$(printf '\033\\[?25h\033\\[?1049l')" screen
}

@test "on a terminal a failure is exit status 3 and --once does not wait" {
    printf '%s\n%s\n' "$start" '{"event":"failed","error":"x"}' >log
    run on_terminal "'$TASUKI' watch log"
    [ "$status" -eq 3 ]
    echo "$start" >log
    run on_terminal "'$TASUKI' watch --once log"
    [ "$status" -eq 0 ]
}

@test "the file for node_exporter keeps to the format, for names that do not" {
    need_python
    cp "$DEMO/digits.onnx" 'a "b\c.onnx'
    SLURM_JOB_ID=12 "$TASUKI" train 'a "b\c.onnx' --data "$DEMO/digits-train.safetensors" \
        --launcher none --batchnorm-samples 4 --global-batch 24 --steps 60 -q --report-every 0.001 \
        --prometheus t.prom --test "$DEMO/digits-test.safetensors" --checkpoint out
    cat t.prom
    python3 "$srcdir/tests/cli/prometheus.py" t.prom >values
    grep -qx 'tasuki_step 60.0 job=12 model=a "b\\c.onnx' values
    grep -qx 'tasuki_running 0.0 job=12 model=a "b\\c.onnx' values
    grep -qx 'tasuki_checkpoint_step 60.0 .*' values
    grep -qE '^tasuki_memory_bytes [1-9][0-9.e+]* .* rank=0 stage=0$' values
    grep -q '^tasuki_predicted_seconds ' values
    grep -q '^tasuki_samples_per_second ' values
    [ "$(ls t.prom*)" = t.prom ]
}

@test "the file for node_exporter is there from the start, and must be writable" {
    need_python
    run "$TASUKI" train $MODEL --global-batch 24 --steps 1 -q --prometheus nowhere/t.prom
    [ "$status" -eq 1 ]
    [[ "$output" == *"nowhere/t.prom: No such file"* ]]
    run "$TASUKI" train $MODEL --global-batch 24 --steps 1 -q --prometheus t.prom \
        --report-every 0
    [ "$status" -eq 2 ]
    [[ "$output" == *"--report-every above 0"* ]]
    "$TASUKI" train $MODEL --global-batch 8 --steps 1000000 -q --prometheus t.prom 3>&- &
    pid=$!
    for _ in $(seq 3000); do
        [ -s t.prom ] && break
        kill -0 $pid
        sleep 0.1
    done
    python3 "$srcdir/tests/cli/prometheus.py" t.prom >values
    kill -TERM $pid
    ! wait $pid || false
    grep -q '^tasuki_running 1.0 ' values
    grep -q '^tasuki_loss nan ' values
}
