# SPDX-License-Identifier: MIT
# What a run says when ranks hang or are slow; ranks on this machine, started by mpirun.

load common

setup() {
    local reason
    reason=$(no_mpi)
    [ -z "$reason" ] || skip "$reason"
    mpi_environment
    dir=$BATS_TEST_TMPDIR
    step=
}

teardown() {
    [ -n "$step" ] || return 0
    kill -9 "$step" $(cat "$dir"/pid.* 2>/dev/null) 2>/dev/null || true
    wait "$step" 2>/dev/null || true
}

# $1 ranks train the digits in the background, far more steps than they will come to.
start_training() {
    local ranks=$1
    shift
    export TASUKI demo=$srcdir/etc/demo dir
    timeout -s KILL 280 mpirun -n "$ranks" sh -c '
        echo $$ >"$dir/pid.$OMPI_COMM_WORLD_RANK"
        exec "$TASUKI" train "$demo/digits.onnx" --data "$demo/digits-train.safetensors" \
            --precision float64 --global-batch 32 --batchnorm-samples 8 --seed 5 \
            --micro-batches 2 --threads 1 --log "$dir/log" "$@"' sh --steps 100000000 "$@" \
        >"$dir/out" 2>&1 3>&- &
    step=$!
}

# Until $1 lines of the log look like $2.
wait_for_lines() {
    local end=$((SECONDS + 120))
    until [ "$(grep -c "$2" "$dir/log" 2>/dev/null)" -ge "$1" ] 2>/dev/null; do
        [ $SECONDS -lt $end ] && kill -0 "$step"
        sleep 0.1
    done
}

@test "a rank stopped for good is named by the others, with its instruction" {
    local code=0
    start_training 3 --stages 3 --replicas 1,1,1 --deadline 5
    wait_for_lines 3 '^{"step"'
    sleep 4.5       # two beats
    kill -STOP "$(cat "$dir/pid.1")"
    wait $step || code=$?
    cat "$dir/out"
    tail -1 "$dir/log"
    [ $code -ne 0 ]
    [ $code -ne 137 ]
    [ "$(grep -c 'error: nothing moved for 5 seconds; rank 1 (.*) does not answer; last heard of [0-9]* seconds ago, in step [0-9]*, stage 1, .*; rank [02] (.*) waits in step [0-9]*, stage [02], .*: .*' "$dir/out")" -eq 1 ]
    [ "$(grep -c 'error: rank 1: silent for [0-9]* s, step [0-9]*, stage 1, ' "$dir/out")" -eq 1 ]
    grep -q 'error: rank[s]* 0.*: step [0-9]*, stage 0, .* for [0-9]* s$' "$dir/out"
    tail -1 "$dir/log" | grep -q '"event":"failed","error":"nothing moved .*"silent"'
}

@test "a rank that is slow is named, with its node and its factor" {
    local victim end=$((SECONDS + 200))
    start_training 2 --stages 1 --replicas 2 --report-every 1
    wait_for_lines 3 '^{"step"'
    victim=$(cat "$dir/pid.1")
    until grep -q '^{"event":"stragglers".*{"rank":1,"node":"[^"]*","stage":0,"factor":' "$dir/log"; do
        [ $SECONDS -lt $end ]
        kill -STOP "$victim"
        sleep 0.3
        kill -CONT "$victim"
        sleep 0.1
    done
    grep '"stragglers"' "$dir/log"
    grep -q ': rank 1 (.*) is slow: .* times as long as the median of its stage$' \
        "$dir/out"
}
