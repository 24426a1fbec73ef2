# SPDX-License-Identifier: MIT
# Runs from the outside: signals, plan files, cost files, traces.

load data.bash

setup() {
    ranks_setup
    DEMO=$srcdir/etc/demo
    MODEL="$DEMO/digits.onnx --data $DEMO/digits-train.safetensors --batchnorm-samples 4"
}

need_mpi() {
    command -v mpirun >/dev/null || skip "no mpirun"
    [ -n "$("$TASUKI" info | grep -E 'mpi +yes')" ] || [ -f "$builddir/.libs/tasuki-mpi.so" ] ||
        skip "built without MPI"
}

# Until the log has a line of a step; the run is over when it ends before that.
wait_for_step() {
    for _ in $(seq 3000); do
        grep -q '^{"step"' "$1" 2>/dev/null && return 0
        kill -0 "$2" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# The run ends with 75, and its log with the step of the checkpoint, which is 'done'.
stops_at_a_checkpoint() {
    local code=0
    wait "$1" || code=$?
    [ "$code" -eq 75 ]
    done=$(sed -E 's/^step-0*//' "$DIR/out/latest")
    [ "$(grep -c '^{"step"' "$DIR/log")" -eq "$done" ]
}

@test "a signal ends the step, writes a checkpoint and exits 75; the run resumes" {
    "$TASUKI" train $MODEL --global-batch 8 --steps 1000000 -q --checkpoint "$DIR/out" \
        --log "$DIR/log" &
    pid=$!
    wait_for_step "$DIR/log" $pid
    kill -TERM $pid
    stops_at_a_checkpoint $pid
    run "$TASUKI" train $MODEL --global-batch 8 --steps $((done + 2)) -q \
        --checkpoint "$DIR/out" --resume --log "$DIR/log"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^{"step"' "$DIR/log")" -eq "$((done + 2))" ]
}

# Signals of a process that come while one waits to be taken are one.
takes_all() {
    for _ in $(seq 600); do
        grep -q '^ShdPnd:[[:space:]]*0*$' "/proc/$1/status" && return
        sleep 0.1
    done
    false
}

@test "SIGINT does so where a process trains alone, and a second one ends it at once" {
    local code=0
    env --default-signal=INT "$TASUKI" train $MODEL --global-batch 8 --steps 1000000 -q \
        --checkpoint "$DIR/out" --log "$DIR/log" &
    pid=$!
    wait_for_step "$DIR/log" $pid
    kill -INT $pid
    stops_at_a_checkpoint $pid
    TASUKI_TEST_DELAY=0:2000000 env --default-signal=INT "$TASUKI" train $MODEL --global-batch 8 \
        --steps 1000000 -q --checkpoint "$DIR/out" --resume --log "$DIR/second" &
    pid=$!
    wait_for_step "$DIR/second" $pid
    kill -INT $pid
    takes_all $pid
    kill -INT $pid
    wait $pid || code=$?
    [ "$code" -eq 130 ]
}

@test "a resume of a run that is done says so and trains nothing" {
    "$TASUKI" train $MODEL --global-batch 8 --steps 3 -q --checkpoint "$DIR/out"
    run "$TASUKI" train $MODEL --global-batch 8 --steps 2 --checkpoint "$DIR/out" --resume \
        --log "$DIR/log"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"nothing is left to do: 2 steps were asked for, 3 are done"* ]]
    [[ "$output" != *"train 0/2"* ]]
    [ "$(grep -c '^{"step"' "$DIR/log")" -eq 0 ]
    [ "$(cat "$DIR/out/latest")" = step-00000003 ]
}

@test "a resume goes on with the loss that was said, and refuses another" {
    case=$srcdir/tests/data/model/linear-dot
    go="train $case/model.onnx --data $case/train.safetensors --global-batch 8 --no-cache -q"
    "$TASUKI" $go --steps 4 --loss dot:out,grad --log "$DIR/whole"
    "$TASUKI" $go --steps 2 --loss dot:out,grad --checkpoint "$DIR/out"
    for other in "--loss mse:out,grad" "--loss dot:grad,out"; do
        run "$TASUKI" $go --steps 4 --checkpoint "$DIR/out" --resume $other
        echo "$output"
        [ "$status" -eq 1 ]
        [[ "$output" == *"made with --loss dot:out,grad"* ]]
    done
    "$TASUKI" $go --steps 3 --checkpoint "$DIR/out" --resume --log "$DIR/log"
    "$TASUKI" $go --steps 4 --checkpoint "$DIR/out" --resume --loss dot:out,grad --log "$DIR/log"
    losses() { sed -nE 's/^\{"step".*"loss": *([^,}]+).*/\1/p' "$1"; }
    [ "$(losses "$DIR/whole" | tail -n 2)" = "$(losses "$DIR/log")" ]
    "$TASUKI" $go --steps 2 --checkpoint "$DIR/chosen"
    run "$TASUKI" $go --steps 4 --checkpoint "$DIR/chosen" --resume --loss dot:out,grad
    [ "$status" -eq 1 ]
    [[ "$output" == *"made without --loss"* ]]
}

@test "a checkpoint replaces that of the same step and clears what killed runs left behind" {
    mkdir -p "$DIR/out/.step-00000007.tmp" "$DIR/out/step-00000007.old" "$DIR/out/step-kept.old"
    touch "$DIR/out/.step-00000007.tmp/shard-0000.safetensors" "$DIR/out/step-00000007.old/x"
    for seed in 1 2; do
        "$TASUKI" train $MODEL --global-batch 8 --steps 2 -q --seed $seed \
            --checkpoint "$DIR/out"
        [ "$(ls -A "$DIR/out" | xargs)" = "latest step-00000002 step-kept.old" ]
        grep -q "\"seed\": *$seed" "$DIR/out/step-00000002/state.json"
    done
}

# As where names cannot be exchanged and a run is killed between two renames.
@test "a checkpoint that was renamed away and never replaced is the newest" {
    go="train $MODEL --global-batch 8 --checkpoint $DIR/out"
    "$TASUKI" $go --steps 4 -q --checkpoint-every 2
    mv "$DIR/out/step-00000004" "$DIR/out/step-00000004.old"
    run "$TASUKI" export "$DIR/out" -o "$DIR/old.onnx"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"out/step-00000004.old: a run was killed while it replaced"* ]]
    run "$TASUKI" $go --steps 5 --resume --log "$DIR/log"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"out/step-00000004.old: a run was killed while it replaced"* ]]
    grep -q '^{"step":5,' "$DIR/log"
    [ "$(ls -A "$DIR/out" | xargs)" = "latest step-00000002 step-00000005" ]
    rm -r "$DIR/out/step-00000005" "$DIR/out/step-00000002"
    run "$TASUKI" $go --steps 6 --resume
    [ "$status" -eq 1 ]
    [[ "$output" == *"out/step-00000005/state.json"* ]]
}

@test "a checkpoint whose name cannot be written to \"latest\" leaves all as it was" {
    mkdir -p "$DIR/new/latest" "$DIR/out"
    run "$TASUKI" train $MODEL --global-batch 8 --steps 2 -q --checkpoint "$DIR/new"
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"new/latest"* ]]
    [ "$(ls -A "$DIR/new")" = latest ]
    # Over an older checkpoint of the same step.
    "$TASUKI" train $MODEL --global-batch 8 --steps 2 -q --seed 1 --checkpoint "$DIR/out"
    rm "$DIR/out/latest"
    mkdir "$DIR/out/latest"
    run "$TASUKI" train $MODEL --global-batch 8 --steps 2 -q --seed 2 --checkpoint "$DIR/out"
    [ "$status" -eq 1 ]
    [ "$(ls -A "$DIR/out" | xargs)" = "latest step-00000002" ]
    grep -q '"seed": *1' "$DIR/out/step-00000002/state.json"
}

@test "a signal without a checkpoint directory is an error" {
    "$TASUKI" train $MODEL --global-batch 8 --steps 1000000 -q --log "$DIR/log" \
        2>"$DIR/said" &
    pid=$!
    wait_for_step "$DIR/log" $pid
    kill -USR1 $pid
    code=0
    wait $pid || code=$?
    [ "$code" -eq 1 ]
    grep -q "without --checkpoint nothing was kept" "$DIR/said"
}

@test "all ranks stop at the same step when one gets a signal" {
    need_mpi
    mpirun -n 3 sh -c '"$@" & echo $! >"$0/pid.$OMPI_COMM_WORLD_RANK"; code=0
            wait $! || code=$?; echo $code >"$0/code.$OMPI_COMM_WORLD_RANK"
            # mpirun ends the others when one has failed.
            for try in $(seq 600); do
                [ $code != 0 ] && ! [ -s "$0/code.1" -a -s "$0/code.2" ] || break
                sleep 0.1
            done
            exit $code' "$DIR" \
        "$TASUKI" train $MODEL --global-batch 24 --steps 1000000 -q --replicas 1,2 \
        --checkpoint "$DIR/out" --log "$DIR/log" 2>"$DIR/said" &
    pid=$!
    wait_for_step "$DIR/log" $pid
    kill -TERM "$(cat "$DIR/pid.2")"
    stops_at_a_checkpoint $pid
    # Rank 0 alone says it: with srun -K the first to fail would end the others at work.
    [ "$(cat "$DIR"/code.[012] | xargs)" = "75 0 0" ]
}

catches_usr1() {
    local caught
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$(cat "$1")/status") && (((0x$caught >> 9) & 1))
}

# Rank 1 comes when rank 0, which waits for it, has been told.
@test "a signal before the ranks have met ends the run when it begins" {
    need_mpi
    mpirun -n 2 sh -c 'if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then echo $$ >"$0/pid"; fi
            [ "$OMPI_COMM_WORLD_RANK" = 0 ] || until [ -e "$0/told" ]; do sleep 0.1; done
            exec "$@"' "$DIR" \
        "$TASUKI" train $MODEL --global-batch 24 --steps 1000000 -q --checkpoint "$DIR/out" \
        --log "$DIR/log" &
    pid=$!
    for _ in $(seq 600); do
        [ ! -s "$DIR/pid" ] || ! catches_usr1 "$DIR/pid" || break
        sleep 0.1
    done
    kill -USR1 "$(cat "$DIR/pid")"
    touch "$DIR/told"
    stops_at_a_checkpoint $pid
    echo "$done steps"; [ "$done" -le 2 ]
}

@test "without a flush a signal ends the step that is under way, and the run goes on as if there were none" {
    need_mpi
    mlp=$srcdir/tests/data/model/mlp
    go="train $mlp/model.onnx --data $mlp/train.safetensors --loss cross-entropy:logits,label
        --global-batch 24 --deterministic --replicas 1,1 --micro-batches 4 -q"
    # It says nothing of the schedule when it is resumed.
    mpirun -n 2 sh -c '"$@" & echo $! >"$0/pid.$OMPI_COMM_WORLD_RANK"; wait $!' "$DIR" \
        "$TASUKI" $go --steps 1000000 --schedule 2bw --checkpoint "$DIR/out" --log "$DIR/log" &
    pid=$!
    wait_for_step "$DIR/log" $pid
    kill -TERM "$(cat "$DIR/pid.1")"
    stops_at_a_checkpoint $pid
    mpirun -n 2 "$TASUKI" $go --steps $((done + 4)) --checkpoint "$DIR/out" --resume \
        --log "$DIR/log"
    mpirun -n 2 "$TASUKI" $go --steps $((done + 4)) --schedule 2bw --log "$DIR/whole"
    only_losses() { sed -nE 's/^\{"step".*"loss": *([^,}]+).*/\1/p' "$1"; }
    diff <(only_losses "$DIR/log") <(only_losses "$DIR/whole")
    # Another schedule, said, holds from there on.
    mpirun -n 2 "$TASUKI" $go --steps $((done + 6)) --checkpoint "$DIR/out" --resume \
        --schedule 1f1b --log "$DIR/log"
    [ "$(grep -c '^{"step"' "$DIR/log")" -eq "$((done + 6))" ]
}

@test "a checkpoint's plan is executed as it is, or planned anew where it does not fit" {
    need_mpi
    need_python
    mpirun -n 2 "$TASUKI" train $MODEL --global-batch 24 --steps 1 -q --stages 2 \
        --micro-batches 3 --checkpoint "$DIR/out"
    python3 -c 'import json, sys
json.dump(json.load(open(sys.argv[1]))["plan"], open(sys.argv[2], "w"))' \
        "$DIR/out/step-00000001/state.json" "$DIR/plan.json"
    data="--data $DEMO/digits-train.safetensors --steps 1"
    run mpirun -n 2 "$TASUKI" train "$DIR/plan.json" $data
    [ "$status" -eq 0 ]
    [[ "$output" == *"2 stages"* && "$output" == *"3 micro-batches of 8"* ]]
    run "$TASUKI" train "$DIR/plan.json" $data
    [ "$status" -eq 0 ]
    [[ "$output" == *"planning anew"* && "$output" == *"1 stage,"* ]]
    run "$TASUKI" train "$DIR/plan.json" $data --keep-plan
    [ "$status" -eq 1 ]
    [[ "$output" == *'cpu1" is driven by no rank of this run (1 rank); rank 0 drives '*/cpu0';'* ]]
    [[ "$output" == *"a plan for 2 ranks"* ]]
    run "$TASUKI" train "$DIR/plan.json" $data --global-batch 12
    [ "$status" -eq 1 ]
    [[ "$output" == *"made for --global-batch 24"* ]]
    other=gpipe
    ! grep -q '"gpipe"' "$DIR/plan.json" || other=1f1b
    for pin in "--stages 1" "--replicas 2" "--micro-batches 2" "--micro-batch-size 4" \
               "--schedule $other"; do
        run mpirun -n 2 "$TASUKI" train "$DIR/plan.json" $data $pin
        [ "$status" -eq 2 ]
        [[ "$output" == *"plan.json: a plan with other stages"* ]]
    done
    run mpirun -n 2 "$TASUKI" train "$DIR/plan.json" $data --stages 2 --micro-batches 3
    [ "$status" -eq 0 ]
}

# Lists that no schedule makes: the last micro-batch first, all W at the end.
reversed_list() {
    echo "schedule reversed stages 2 micro-batches 4"
    echo "stage 0 slots 4"
    for m in 3 2 1 0; do printf 'F %d 0\nSEND %d 0 -> 1\n' $m $m; done
    for m in 3 2 1 0; do printf 'RECV %d 0 <- 1 gradient\n' $m; done
    for m in 3 2 1 0; do printf 'BW %d 0\n' $m; done
    printf 'REDUCE\nSTEP\nstage 1 slots 4\n'
    for m in 3 2 1 0; do printf 'RECV %d 0 <- 0\n' $m; done
    for m in 3 2 1 0; do printf 'F %d 0\nB %d 0\nSEND %d 0 -> 0 gradient\n' $m $m $m; done
    for m in 3 2 1 0; do printf 'W %d 0\n' $m; done
    printf 'REDUCE\nSTEP\n'
}

@test "pinned nodes and pipelines are what is run" {
    need_mpi
    run mpirun -n 2 "$TASUKI" train $MODEL --global-batch 24 --steps 1 --no-cache \
        --pin '/widen/*=1' --log "$DIR/log"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"plan: 2 stages"* ]]
    # The second list of blocks.
    sed -E 's/.*"stages":\[//; s/"blocks"/\n&/g' "$DIR/log" | grep '"blocks"' | sed -n 2p |
        grep -q '"/widen'
    run mpirun -n 2 "$TASUKI" train $MODEL --global-batch 24 --steps 1 --no-cache --pipelines 2
    [[ "$status" -eq 0 && "$output" == *"2 pipelines of 1 stage, 2 ranks"* ]]
}

@test "instructions from a file run as they stand, and from the plan that has them" {
    need_mpi
    need_python
    data="--data $DEMO/digits-train.safetensors"
    # Each run measures its costs: the same cut in all, so that the same bytes come out.
    new="$MODEL --global-batch 48"
    cut=(--pin '/pool/*=0' --pin '/widen/*=1')
    go() { mpirun -n 2 "$TASUKI" train "$@" --steps 3 --deterministic --no-cache -q; }
    "$TASUKI" plan $new --stages 2 --micro-batches 4 --schedule zb -o "$DIR/zb.json" -q \
        --cluster flat:2,bandwidth=1e9,flops=1e12,memory-bandwidth=1e11 >/dev/null
    "$TASUKI" simulate "$DIR/zb.json" $data --format schedule -o "$DIR/list"
    go $new "${cut[@]}" --stages 2 --micro-batches 4 --schedule zb --dump-gradients "$DIR/zb"
    go $new "${cut[@]}" --schedule "$DIR/list" --dump-gradients "$DIR/same"
    cmp "$DIR/zb" "$DIR/same"
    reversed_list >"$DIR/reversed"
    go $new --precision float64 --schedule "$DIR/reversed" --log "$DIR/two" \
        --checkpoint "$DIR/out"
    python3 -c 'import json, sys
json.dump(json.load(open(sys.argv[1]))["plan"], open(sys.argv[2], "w"))' \
        "$DIR/out/step-00000003/state.json" "$DIR/plan.json"
    grep -q '"schedule reversed stages 2 micro-batches 4"' "$DIR/plan.json"
    go "$DIR/plan.json" $data --log "$DIR/again"
    go "$DIR/plan.json" $data --log "$DIR/third" --schedule "$DIR/reversed"
    "$TASUKI" train $new --precision float64 --steps 3 -q --log "$DIR/one"
    exactly() { sed -nE 's/^\{"step".*"loss":([^,}]+).*/\1/p' "$DIR/$1"; }
    [ "$(exactly two)" = "$(exactly again)" ]
    [ "$(exactly two)" = "$(exactly third)" ]
    [ "$(losses "$DIR/two")" = "$(losses "$DIR/one")" ]
    run mpirun -n 2 "$TASUKI" train "$DIR/plan.json" $data --steps 3 -q --schedule zb
    [ "$status" -eq 2 ]
    [[ "$output" == *"another schedule"* ]]
}

# A trial on $1 ranks trains what the plan that it takes trains, in as much memory.
trial_of() {
    python3 - "$DIR/log" "$DIR/plan.json" <<'END'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
trials = [line for line in lines if line.get("event") == "trial"]
plan = next(line["plan"] for line in lines if line.get("event") == "start")
assert len(trials) == 3 and [line["trial"] for line in trials] == [1, 2, 3], trials
# The interval of the first is 1 to 1; another is taken where its own lies below.
faster = [line for line in trials if (line["ratio_high"] or 2) < 1]
best = min(faster or trials[:1], key=lambda line: line["ratio"])
assert all(6 <= line["rounds"] <= trials[0]["rounds"] <= 30 for line in trials), trials
assert best["replicas"] == [stage["replicas"] for stage in plan["stages"]], (best, plan)
assert (best["micro_batches"], best["schedule"]) == (plan["micro_batches"], plan["schedule"])
assert best["predicted_seconds"] == plan["iteration_seconds"]
kinds = {(t["pipelines"], len(t["replicas"]), t["micro_batches"], t["schedule"]) for t in trials}
assert len(kinds) == 3, kinds
json.dump(plan, open(sys.argv[2], "w"))
END
    data="--data $DEMO/digits-train.safetensors"
    curve "$DIR/again" "$1" "$DIR/plan.json" $data --steps 5
    diff <(losses "$DIR/log") <(losses "$DIR/again")
    # What was handed out: planning and trials leave more of the process resident.
    peak() { sed -nE 's/.*"event":"memory","peak":(\[[^]]*\]).*/\1/p' "$1"; }
    [ -n "$(peak "$DIR/log")" ]
    [ "$(peak "$DIR/log")" = "$(peak "$DIR/again")" ]
}

@test "a trial takes the plan shown to be the fastest and changes nothing else" {
    need_python
    own_cache
    curve "$DIR/log" 1 $MODEL --global-batch 16 --steps 5 --trial 3
    trial_of 1
    has_mpi || return 0
    curve "$DIR/log" 4 $MODEL --global-batch 24 --steps 5 --trial 3
    trial_of 4
}

# Forecast and median step of the log, in seconds.
forecast_of() {
    python3 - "$DIR/log" <<'END'
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
plan = next(line["plan"] for line in lines if line.get("event") == "start")
print(plan["iteration_seconds"], statistics.median(
    line["seconds"] for line in lines if "step" in line and "event" not in line))
END
}

@test "what a trial took is in the forecast of the next plan" {
    need_mpi
    need_python
    own_cache
    pins="--pipelines 1 --stages 2 --replicas 1,1"
    go() { mpirun -n 2 "$TASUKI" train $MODEL --global-batch 24 $pins --steps 9 --log "$DIR/log" \
        "$@"; }
    go -q
    # As if operators alone took a second: a forecast that is some 1,000 times too long.
    python3 - "$DIR"/cache/cpu-*.json <<'END'
import json, sys
top = json.load(open(sys.argv[1]))
top["crowded"] = {}
top["seconds"] = {key: 1e-9 if key.startswith("update") else 1 for key in top["seconds"]}
json.dump(top, open(sys.argv[1], "w"))
END
    go -q
    before=$(forecast_of)
    python3 -c 'import sys
forecast, measured = map(float, sys.argv[1:])
assert forecast / measured > 20, (forecast, measured)' $before
    # What is kept is how much faster blocks were computed than forecast, and the next forecast is so
    # much shorter. A step took as long, or longer where ranks waited for a core.
    go --trial 2
    grep '"event":"trial"' "$DIR/log" >"$DIR/trials"
    go -q
    after=$(forecast_of)
    python3 - "$DIR"/cache/trial-*.json "$DIR/trials" "${after% *}" <<'END'
import json, sys
factors = json.load(open(sys.argv[1]))["blocks"].values()
trials = [json.loads(line) for line in open(sys.argv[2])]
predicted = min(trial["predicted_seconds"] for trial in trials)
later, measured = float(sys.argv[3]), max(trial["measured_seconds"] for trial in trials)
assert max(factors) < 0.1, factors
assert 0.9 * min(factors) * predicted < later < 1.1 * max(factors) * predicted, (later, predicted, factors)
assert later < 2 * measured, (later, measured)
END
    # Costs that are given stay what they are, and nothing is kept of them.
    kept=$(cat "$DIR"/cache/trial-*.json)
    "$TASUKI" profile ${MODEL%%--batchnorm*} --batchnorm-samples 4 -o "$DIR/cost.json" -q
    run go --trial 2 --cost "$DIR/cost.json"
    [[ "$status" -eq 0 && "$output" == *" of 2 is taken: "* && "$output" != *"is kept"* ]]
    [ "$kept" = "$(cat "$DIR"/cache/trial-*.json)" ]
    # Factors that nothing measured can have count for nothing.
    for factor in 1e308 1e-308; do
        sed -E -i "s/(\"\/[^\"]*\"): [-+0-9.e]+/\1: $factor/g" "$DIR"/cache/trial-*.json
        grep -q ": $factor" "$DIR"/cache/trial-*.json
        go -q
        forecast_of | awk -v before="${before% *}" '{ exit !($1 > before / 2 && $1 < 2 * before) }'
    done
}

# Stages of the plan that the log starts with.
stages_of() {
    sed -nE 's/.*"event":"start".*"replicas":\[([0-9,]*)\],"loss".*/\1/p' "$DIR/log" |
        awk -F, '{ print NF }'
}

@test "the plan after a trial has the stages that came first in it" {
    need_mpi
    need_python
    own_cache
    go() { mpirun -n 2 "$TASUKI" train $MODEL --global-batch 24 --schedule 1f1b --steps 1 \
        --log "$DIR/log" -q "$@"; }
    go --trial 2
    for turn in 1 2; do
        go
        # What came first comes last, so that each is first once.
        first=$(python3 - "$DIR"/cache/trial-*.json <<'END'
import json, sys
top = json.load(open(sys.argv[1]))
assert sorted(shape["stages"] for shape in top["shapes"]) == [1, 2], top
print(top["shapes"][0]["stages"])
top["shapes"].reverse()
json.dump(top, open(sys.argv[1], "w"))
END
)
        [ "$(stages_of)" = "$first" ]
    done
}

@test "a trial where there is one plan, where one is given, or nothing may differ, says so" {
    go="train $MODEL --global-batch 8 --steps 1"
    run "$TASUKI" $go --trial 2 --stages 1 --micro-batches 1 --checkpoint "$DIR/out" \
        --log "$DIR/log"
    [[ "$status" -eq 0 && "$output" == *"--trial: there is no other plan to try"* ]]
    run "$TASUKI" $go --trial 2 --checkpoint "$DIR/out" --resume --steps 2
    [[ "$status" -eq 0 && "$output" == *"--trial: there is no other plan to try"* ]]
    run "$TASUKI" $go --trial 2 --checkpoint "$DIR/out" --resume --steps 2
    [[ "$status" -eq 0 && "$output" != *"--trial"* ]]
    ! grep -q '"event":"trial"' "$DIR/log" || false
    "$TASUKI" plan $MODEL --global-batch 8 -o "$DIR/plan.json" >/dev/null
    run "$TASUKI" train "$DIR/plan.json" --data "$DEMO/digits-train.safetensors" --steps 1 \
        --trial 2
    [[ "$status" -eq 2 && "$output" == *"--trial: $DIR/plan.json is a plan: "* ]]
    run "$TASUKI" $go --trial 2 --deterministic
    [[ "$status" -eq 2 && "$output" == *"--trial and --deterministic: "* ]]
    for wrong in 0 1 65 x; do
        run "$TASUKI" $go --trial $wrong
        [[ "$status" -eq 2 && "$output" == *"--trial"* ]]
    done
}

@test "pins for more ranks than there are give the line to use" {
    run "$TASUKI" train $MODEL --global-batch 8 --steps 1 --replicas 2,1
    [ "$status" -eq 2 ]
    [[ "$output" == *"needs 3 ranks, this run has 1"*"srun --mpi=pmix -n 3"* ]]
    reversed_list >"$DIR/list"
    run "$TASUKI" train $MODEL --global-batch 8 --steps 1 --schedule "$DIR/list"
    [[ "$status" -eq 2 && "$output" == *"$DIR/list needs 2 ranks, this run has 1"* ]]
    run "$TASUKI" train $MODEL --global-batch 8 --steps 1 --schedule "$DIR/list" \
        --ranks-in-process 3 --replicas 1,1,1
    [[ "$status" -eq 2 && "$output" == *"$DIR/list: lists for 2 stages, --replicas names 3"* ]]
}

@test "profile writes a cost file from which train plans" {
    own_cache
    run "$TASUKI" profile $MODEL --batch-size 4,8 -o "$DIR/cost.json" --no-cache -q
    [ "$status" -eq 0 ]
    grep -q '"tasuki-cost"' "$DIR/cost.json"
    [ ! -e "$DIR/cache" ]
    run "$TASUKI" train $MODEL --global-batch 8 --steps 1 --cost "$DIR/cost.json"
    [ "$status" -eq 0 ]
    [ ! -e "$DIR/cache" ]
}

@test "profile says how many operators it measured, and how well" {
    run "$TASUKI" profile $MODEL --batch-size 4 -o "$DIR/cost.json" --no-cache
    [ "$status" -eq 0 ]
    [[ "$output" =~ [0-9]+" operators measured; half of their rounds within "[0-9.e+]+" %" ]]
    run "$TASUKI" profile $MODEL --cluster dgx-h100:1 --roofline -o "$DIR/cost.json"
    [ "$status" -eq 0 ]
    [[ "$output" != *"operators measured"* ]]
}

@test "profile prints the operators of a whole step and the share of reorders" {
    run "$TASUKI" profile $MODEL --batch-size 8 --optimizer adamw
    [ "$status" -eq 0 ]
    [[ "$output" == *"reorders "* && "$output" == *"(optimizer)"* ]]
}

@test "ranks without work wait for the others and end well" {
    need_mpi
    run mpirun -n 3 "$TASUKI" train $MODEL --global-batch 8 --epochs 1 --replicas 1 \
        --test "$DEMO/digits-test.safetensors" --checkpoint "$DIR/out" --checkpoint-every 50
    [ "$status" -eq 0 ]
    [[ "$output" == *"2 ranks of 3 have no work"* ]]
    [ -f "$DIR/out/latest" ]
    run mpirun -n 2 "$TASUKI" train $MODEL --global-batch 8 --steps 1 --replicas 1
    [[ "$output" == *"1 rank of 2 has no work"* ]]
}

@test "the first reduction starts before the last backward ends" {
    need_mpi
    need_python
    mpirun -n 3 "$TASUKI" train $MODEL --global-batch 48 --steps 4 -q --replicas 2,1 \
        --micro-batches 2 --trace "$DIR/trace.json"
    python3 - "$DIR/trace.json" <<'END'
import json, sys
events = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"]
for step in range(4):
    now = [e for e in events if e["args"]["step"] == step]
    first = min(e["ts"] for e in now if e["cat"] == "REDUCE")
    last = max(e["ts"] + e["dur"] for e in now if e["cat"] in ("B", "BW"))
    assert first < last, (step, first, last)
END
}

@test "a trace that had no room for all says what it lacks" {
    case=$srcdir/tests/data/model/linear-dot
    run "$TASUKI" train "$case/model.onnx" --data "$case/train.safetensors" --global-batch 32 \
        --micro-batches 32 --steps 1020 --no-cache -q --trace "$DIR/trace.json"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"trace.json: without the last "*" events"* ]]
}

@test "a trace shows the steps, not the evaluations" {
    need_mpi
    need_python
    mpirun -n 2 "$TASUKI" train $MODEL --global-batch 48 --steps 2 -q --stages 2 \
        --micro-batches 2 --eval-every 1 --test "$DEMO/digits-test.safetensors" \
        --trace "$DIR/trace.json"
    python3 - "$DIR/trace.json" <<'END'
import json, sys
events = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"]
for step in range(2):
    now = [e for e in events if e["args"]["step"] == step and e["cat"] == "RECV"]
    assert len(now) == 4, (step, len(now))
END
}

@test "a trace has the forecast of a step beside the step, in rows of the same names" {
    local mlp=$srcdir/tests/data/model/mlp
    need_python
    "$TASUKI" train "$mlp/model.onnx" --data "$mlp/train.safetensors" --global-batch 8 --steps 3 -q \
        --ranks-in-process 2 --stages 2 --replicas 1,1 --micro-batches 2 --trace "$DIR/trace.json" \
        --checkpoint "$DIR/out"
    python3 - "$DIR/trace.json" <<'END'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
ranks = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
assert [ranks[r] for r in range(4)] == ["rank 0, stage 0", "rank 1, stage 1", "forecast, rank 0",
                                        "forecast, rank 1"], ranks
for rank in range(2):
    both = [[rows[r, t] for t in range(4)] for r in (rank, 2 + rank)]
    assert both[0] == both[1] == ["instructions", "reduce", "receive", "send"], both
    for kind, row in ("F", 0), ("RECV", 2), ("SEND", 3):
        ran, told = ([e for e in events if e["ph"] == "X" and e["name"].startswith(kind + " ")
                      and (e["pid"], e["tid"], e["args"]["step"]) == (r, row, 1)]
                     for r in (rank, 2 + rank))
        assert sorted(e["name"] for e in ran) == sorted(e["name"] for e in told) and told, (ran, told)
begin = [min(e["ts"] for e in events if e["ph"] == "X" and e["args"]["step"] == 1 and
             e["cat"] != "RECV" and (e["cat"] == "forecast") == told) for told in (False, True)]
assert begin[0] > 0 and abs(begin[0] - begin[1]) < 1, begin
END
    # Under the plan of a checkpoint nothing is measured, and there is none.
    "$TASUKI" train "$mlp/model.onnx" --data "$mlp/train.safetensors" --global-batch 8 --steps 4 -q \
        --ranks-in-process 2 --checkpoint "$DIR/out" --resume --trace "$DIR/more.json"
    grep -q '"rank 1, stage 1"' "$DIR/more.json"
    ! grep -q forecast "$DIR/more.json" || false
}

@test "evaluation counts each held-out sample once, whatever the batch" {
    local mlp=$srcdir/tests/data/model/mlp what values
    for batch in 5 24 72; do
        "$TASUKI" train "$mlp/model.onnx" --data "$mlp/train.safetensors" \
            --test "$mlp/train.safetensors" --global-batch $batch --steps 1 --lr 0 -q \
            --log "$DIR/log.$batch" --no-shuffle --precision float64
    done
    for what in samples accuracy loss; do
        values=$(sed -nE "s/.*evaluation.*\"$what\":([0-9.]+).*/\1/p" "$DIR"/log.* |
                 awk '{ printf "%.9f\n", $1 }' | sort -u)
        [ "$(echo "$values" | wc -l)" -eq 1 ]
    done
}

@test "a model whose name no checkpoint could hold is refused before the first step" {
    name=$DIR/$(printf 'mod\xe9l').onnx
    cp "$DEMO/digits.onnx" "$name" || skip "this file system wants UTF-8"
    for command in "train --steps 1 --checkpoint $DIR/out" "plan -o $DIR/plan.json"; do
        run "$TASUKI" $command "$name" --data "$DEMO/digits-train.safetensors" --global-batch 8
        echo "$output"
        [ "$status" -eq 1 ]
        [[ "$output" == *"the name is not UTF-8"* ]]
    done
    [ ! -e "$DIR/out/latest" ] && [ ! -e "$DIR/plan.json" ]
}
