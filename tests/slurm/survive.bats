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
        [ "$OMPI_COMM_WORLD_RANK" != "${hangs:-none}" ] || export TASUKI_TEST_DELAY=1:900000000
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
    # The tests before have runs that measure links, which takes minutes where others work beside it.
    export TASUKI_MEASURE=none
    "$lab" up
    "$lab" hosts 1 | sed "/^n4/s/1$/2/" >"$dir/hosts"
    run_by=("$lab" run)
    spread=(-mca plm rsh -mca plm_rsh_agent "$lab rsh" -mca ras ^slurm --hostfile "$dir/hosts")
}

# Until "${@:2}" fails: $took, in seconds since $began, $1 at most.
until_gone() {
    local limit=$1
    shift
    while "$@" >/dev/null; do
        took=$(awk "BEGIN { print $EPOCHREALTIME - $began }")
        awk "BEGIN { exit !($took < $limit) }" || { cat "$dir"/said.*; false; }
        sleep 0.1
    done
    took=$(awk "BEGIN { print $EPOCHREALTIME - $began }")
}

# Is there a rank on another node than this?
elsewhere() {
    [ "$("$lab" run pgrep -x tasuki | wc -l)" -gt "$("$lab" at "$1" pgrep -x tasuki | wc -l)" ]
}

# The cable of $1 is pulled: in $2 seconds no rank is left, on either side.
cut_off() {
    began=$EPOCHREALTIME
    "$lab" run ip link set "to-$1" down
    until_gone "$2" elsewhere "$1"
    echo "# cable of $1: all ranks on other nodes were gone after $took s" >&3
    until_gone "$2" "$lab" at "$1" pgrep -x tasuki
    echo "# cable of $1: all of its own after $took s" >&3
    grep -H error "$dir"/said.*
}

# Is one of these ranks there?
some_left() {
    local rank
    for rank in "$@"; do
        [ ! -d "/proc/$(cat "$dir/pid.$rank")" ] || return 0
    done
    return 1
}

# Until $1 lines of the log look like $2.
wait_for_lines() {
    local end=$((SECONDS + 200))
    until [ "$(grep -c "$2" "$dir/log" 2>/dev/null)" -ge "$1" ] 2>/dev/null; do
        [ $SECONDS -lt $end ]
        kill -0 "$step"
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
    began=$EPOCHREALTIME
    until_gone 30 some_left 0 1 2
    [ "$(grep -cE "error: nothing moved for 5 seconds; $(silent_rank 1 '.*' 1); rank [02] \(.*\) waits in $at_work\$" "$dir/out")" -eq 1 ]
    [ "$(grep -cE "error: rank 1: silent for [0-9]+ s, $at_work before\$" "$dir/out")" -eq 1 ]
    grep -qE "error: ranks? (0|0, 2): $at_work, for [0-9]+ s\$" "$dir/out"
    # Those that are silent come first.
    grep -E 'error: ranks? .*(silent|, for [0-9]+ s$)' "$dir/out" | head -1 | grep 'silent for'
    tail -1 "$dir/log" | grep -qE '"event":"failed","error":"nothing moved .*"ranks":\[\{"ranks":\[1\],"step":[0-9]+,"stage":1,"micro_batch":([0-9]+|null),"instruction":"[A-Za-z ]+","operation":"[a-z-]+","peer":([0-9]+|null),"seconds":[0-9.e-]+,"silent":[0-9.]+'
}

# The deadline is the default, 600 seconds.
@test "a rank stopped for good ends the run, itself too, within half a minute" {
    local code=0
    start_training 3 --stages 3 --replicas 1,1,1
    wait_for_lines 3 '^{"step"'
    sleep 4.5       # two beats
    began=$EPOCHREALTIME
    kill -STOP "$(cat "$dir/pid.0")"
    until_gone 30 some_left 0 1 2
    echo "# all ranks were gone $took s after one was stopped" >&3
    awk "BEGIN { exit !($took >= 19) }"
    wait $step || code=$?
    cat "$dir"/said.*
    [ $code -ne 0 ]
    cat "$dir"/said.[12] | grep -E "error: a process does not run; $(silent_rank 0 '.*' 0); rank [12] "
    ! grep error "$dir/said.0" || false
}

# Its main thread sleeps in an instruction, the others wait for it.
@test "a rank that hangs and lives is named, and all have left ten seconds after --deadline" {
    mpirun --enable-recovery -n 1 true || skip "this mpirun has no --enable-recovery"
    export hangs=1
    spread=(--enable-recovery)
    start_training 3 --stages 3 --replicas 1,1,1 --deadline 20
    wait_for_lines 1 '"event":"start"'
    began=$EPOCHREALTIME
    until_gone 40 some_left 0 1 2       # of a busy machine, too
    echo "# all ranks were gone $took s after one had hung" >&3
    wait $step || true      # 0: it was told to carry on
    cat "$dir"/said.*
    [ "$(cat "$dir"/said.* | grep -cE "error: nothing moved for 20 seconds; rank 1 \(.*\) is in step 1, stage 1, [A-Z]+ of micro-batch [0-9]+: computes, for [0-9]+ seconds; rank [02] ")" -eq 1 ]
    tail -1 "$dir/log" | grep -q '"event":"failed","error":"nothing moved for 20 seconds; rank 1 '
}

# The main threads sleep in instructions, the others wait for them.
@test "that nothing moves is said before anybody gives up, once, and that it moves again" {
    export TASUKI_TEST_DELAY=3:9000000
    start_training 3 --stages 3 --replicas 1,1,1 --warn-after 2
    wait_for_lines 1 '"event":"moves"'
    cat "$dir"/said.*
    grep -E '^\{"event":"(standstill|moves)"' "$dir/log"
    grep -qE 'warning: nothing has moved for [2-9] seconds \(--warn-after\); where the ranks are:$' "$dir/said.0"
    grep -qE "warning: ranks? [0-2](, [0-2])?: $at_work, for [0-9]+ s\$" "$dir/said.0"
    grep -qE 'warning: it moves again, after [0-9]+ seconds$' "$dir/said.0"
    grep -E '^\{"event":"(standstill|moves)"' "$dir/log" | head -2 | tail -1 | grep -q '"moves"'
    grep -qE '^\{"event":"standstill","seconds":[2-9][0-9.]*,"ranks":\[\{"ranks":\[[0-2,]+\],"step":1,"stage":[0-2],"micro_batch":([0-9]|null),"instruction":"[A-Z]+","operation":"[a-z-]+","peer":([0-2]|null),"seconds":[0-9.e-]+,"silent":0' "$dir/log"
    ! grep -s "warning: nothing" "$dir"/said.[12] || false
}

# mpirun is told to carry on, and ends nobody.
@test "when a rank dies, those in long instructions have ended in half a minute, and one says why" {
    mpirun --enable-recovery -n 1 true || skip "this mpirun has no --enable-recovery"
    export TASUKI_TEST_DELAY=1:900000000
    spread=(--enable-recovery)
    start_training 3 --stages 3 --replicas 1,1,1
    wait_for_lines 1 '"event":"start"'
    sleep 5         # all have begun
    began=$EPOCHREALTIME
    kill -KILL "$(cat "$dir/pid.1")"
    until_gone 30 some_left 0 1 2
    echo "# all ranks were gone $took s after one died" >&3
    cat "$dir"/said.*
    [ "$(cat "$dir"/said.* | grep -c 'error: rank 1 (.*) is lost: its process has ended$')" -eq 1 ]
    tail -1 "$dir/log" | grep -q '"event":"failed","error":"rank 1 (.*) is lost: its process has ended"'
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

@test "reports come each so many steps, with the rank that is slow, its node and its factor" {
    local victim end=$((SECONDS + 200))
    start_training 2 --stages 1 --replicas 2 --report-every 20steps
    wait_for_lines 3 '^{"step"'
    victim=$(cat "$dir/pid.1")
    until [ "$(grep -c '^{"event":"stragglers"' "$dir/log")" -ge 3 ]; do
        [ $SECONDS -lt $end ]
        kill -STOP "$victim"
        sleep 0.3
        kill -CONT "$victim"
        sleep 0.1
    done
    grep '"stragglers"' "$dir/log" | tail -3
    reports_of_steps 20 "$dir/log"
    grep -q "^{\"event\":\"stragglers\".*{\"rank\":1,\"node\":\"$(hostname)\",\"stage\":0,\"factor\":" "$dir/log"
}

# The deadline is the default, 600 seconds.
@test "when a cable is pulled, the ranks on both sides leave and name the nodes" {
    use_nodes
    start_training 5 --stages 3 --replicas 2,2,1
    wait_for_lines 3 '^{"step"'
    cut_off n4 30
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
    cut_off n1 20
    far="cannot be reached from" long='no answer for 10 seconds$'
    grep -q "error: node n2 (rank 1), node n3 (rank 2) and 1 more node $far n1: " "$dir/said.0"
    [ "$(cat "$dir"/said.[1234] | grep -c "error: node n1 (rank 0) $far n[234]: $long")" -eq 1 ]
}

# Their main threads sleep, each as long as one instruction would take; what they would say is said.
@test "when a cable is pulled, ranks in long instructions are gone by then, too, and one says why" {
    use_nodes
    export TASUKI_TEST_DELAY=1:900000000
    start_training 5 --stages 3 --replicas 2,2,1
    wait_for_lines 1 '"event":"start"'
    sleep 5         # all have begun
    cut_off n4 30
    far="cannot be reached from" long='no answer for 20 seconds$'
    [ "$(cat "$dir"/said.[012] | grep -c "error: node n4 (ranks 3, 4) $far n[12]: $long")" -eq 1 ]
    [ "$(cat "$dir"/said.[34] | grep -c "error: node n1 (rank 0) and node n2 (rank 1) $far n4: ")" \
        -eq 1 ]
    tail -1 "$dir/log" | grep -q '"event":"failed","error":"node n4 (ranks 3, 4) cannot'
}
