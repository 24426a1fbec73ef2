# SPDX-License-Identifier: MIT
# What a run says when ranks hang, are slow or cut off; ranks on this machine, or on virtual nodes,
# started by mpirun.

load common

setup() {
    local reason
    reason=$(no_mpi)
    [ -z "$reason" ] || skip "$reason"
    mpi_environment
    dir=$BATS_TEST_TMPDIR
    step=
    run_by=()
    spread=()
}

teardown() {
    [ -z "${LAB_DIR:-}" ] || "$lab" down
    [ -n "$step" ] || return 0
    kill -9 "$step" $(cat "$dir"/pid.* 2>/dev/null) 2>/dev/null || true
    wait "$step" 2>/dev/null || true
}

# $1 ranks train the digits in the background, far more steps than they will come to.
start_training() {
    local ranks=$1
    shift
    export TASUKI demo=$srcdir/etc/demo dir
    "${run_by[@]}" timeout -s KILL 280 mpirun "${spread[@]}" -n "$ranks" sh -c '
        echo $$ >"$dir/pid.$OMPI_COMM_WORLD_RANK"
        exec "$TASUKI" train "$demo/digits.onnx" --data "$demo/digits-train.safetensors" \
            --precision float64 --global-batch 32 --batchnorm-samples 8 --seed 5 \
            --micro-batches 2 --threads 1 --log "$dir/log" "$@" \
            2>"$dir/said.$OMPI_COMM_WORLD_RANK"' sh --steps 100000000 "$@" \
        >"$dir/out" 2>&1 3>&- &
    step=$!
}

# The next training is on four nodes: ranks 0 to 2 on n1 to n3, 3 and 4 on n4.
use_nodes() {
    local reason
    export LAB_DIR=$dir/lab LAB_SLURM=no LAB_NODES=4 LAB_CPUS=4
    export PRTE_MCA_plm_ssh_agent="$lab rsh"
    reason=$("$lab" why-not) || reason=
    [ -z "$reason" ] || { unset LAB_DIR; skip "$reason"; }
    "$lab" up
    "$lab" hosts 1 | sed "/^n4/s/1$/2/" >"$dir/hosts"
    run_by=("$lab" run)
    spread=(-mca plm rsh -mca plm_rsh_agent "$lab rsh" -mca ras ^slurm --hostfile "$dir/hosts")
}

# The cable of $1 is pulled: in $2 seconds no rank is left, on either side.
cut_off() {
    local start=$SECONDS
    "$lab" run ip link set "to-$1" down
    while "$lab" run pgrep -x tasuki >/dev/null; do
        [ $((SECONDS - start)) -lt "$2" ] || { cat "$dir"/said.*; false; }
        sleep 0.2
    done
    echo "# cable of $1: all ranks were gone after $((SECONDS - start)) s" >&3
    grep -H error "$dir"/said.*
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
    cat "$dir"/said.* | tee -a "$dir/out"
    tail -1 "$dir/log"
    [ $code -ne 0 ]
    [ $code -ne 137 ]
    [ "$(grep -c 'error: nothing moved for 5 seconds; rank 1 (.*) does not answer; last heard of [0-9]* seconds ago, in step [0-9]*, stage 1, .*; rank [02] (.*) waits in step [0-9]*, stage [02], .*: .*' "$dir/out")" -eq 1 ]
    [ "$(grep -c 'error: rank 1: silent for [0-9]* s, step [0-9]*, stage 1, ' "$dir/out")" -eq 1 ]
    grep -q 'error: rank[s]* 0.*: step [0-9]*, stage 0, .* for [0-9]* s$' "$dir/out"
    tail -1 "$dir/log" | grep -q '"event":"failed","error":"nothing moved .*"silent"'
}

# The deadline is the default, 600 seconds.
@test "a rank stopped for good ends the run within half a minute" {
    local code=0 start
    start_training 3 --stages 3 --replicas 1,1,1
    wait_for_lines 3 '^{"step"'
    sleep 4.5       # two beats
    start=$SECONDS
    kill -STOP "$(cat "$dir/pid.0")"
    until cat "$dir"/said.* | grep 'a process does not run; rank 0 (.*) does not answer; '; do
        [ $((SECONDS - start)) -le 30 ]
        sleep 0.3
    done
    [ $((SECONDS - start)) -ge 19 ]
    wait $step || code=$?
    [ $code -ne 0 ]
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
    cat "$dir"/said.* | grep ': rank 1 (.*) is slow: .* times as long as the median of its stage$'
}

# The deadline is the default, 600 seconds.
@test "when a cable is pulled, the ranks on both sides leave and name the nodes" {
    use_nodes
    start_training 5 --stages 3 --replicas 2,2,1
    wait_for_lines 3 '^{"step"'
    cut_off n4 40
    far="cannot be reached from" long='no answer for 20 seconds$'
    [ "$(cat "$dir"/said.[012] | grep -c "error: node n4 (ranks 3, 4) $far n[12]: $long")" -eq 1 ]
    [ "$(cat "$dir"/said.[34] | grep -c "error: node n1 (rank 0) and node n2 (rank 1) $far n4: ")" \
        -eq 1 ]
    tail -1 "$dir/log" | grep -q '"event":"failed","error":"node n4 (ranks 3, 4) cannot'
}

@test "ranks that are stopped can be reached; rank 0 that is cut off leaves as the others do" {
    use_nodes
    start_training 5 --stages 3 --replicas 2,2,1 --lost-after 10
    wait_for_lines 3 '^{"step"'
    "$lab" at n2 pkill -STOP -x tasuki
    "$lab" at n3 pkill -STOP -x tasuki
    sleep 15        # longer than the bound
    "$lab" at n2 pkill -CONT -x tasuki
    "$lab" at n3 pkill -CONT -x tasuki
    wait_for_lines $(($(grep -c '^{"step"' "$dir/log") + 3)) '^{"step"'
    cut_off n1 30
    far="cannot be reached from" long='no answer for 10 seconds$'
    grep -q "error: node n2 (rank 1), node n3 (rank 2) and 1 more node $far n1: " "$dir/said.0"
    [ "$(cat "$dir"/said.[1234] | grep -c "error: node n1 (rank 0) $far n[234]: $long")" -eq 1 ]
}
