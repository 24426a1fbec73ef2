# Options of train that say how to run: each does what its line of help says.

setup() {
    cd "$BATS_TEST_TMPDIR"
    demo=$srcdir/etc/demo
    export TASUKI_THREADS=1
}

# train OPTION...: a short run on the digits.
train() {
    "$TASUKI" train "$demo/digits.onnx" --data "$demo/digits-train.safetensors" \
        --batchnorm-samples 32 --global-batch 32 "$@"
}

# The losses of a run of four steps, on one line.
losses() {
    train --steps 4 --log log -q "$@" && sed -nE 's/^\{"step".*"loss": *([^,}]+).*/\1/p' log | xargs
}

@test "each figure of an optimizer changes the curve" {
    adam=$(losses --optimizer adam)
    [ "$(wc -w <<<"$adam")" -eq 4 ]
    [ "$(losses --optimizer adam --beta1 0.9 --beta2 0.999 --epsilon 1e-8 --lr 0.001)" = "$adam" ]
    for change in "--beta1 0.5" "--beta2 0.9" "--epsilon 1e-2" "--lr 0.01" "--seed 5"; do
        [ "$(losses --optimizer adam $change)" != "$adam" ]
    done
    momentum=$(losses --optimizer momentum)
    [ "$(losses --optimizer momentum --momentum 0.5)" != "$momentum" ]
    [ "$(losses --optimizer momentum --weight-decay 0.1)" != "$momentum" ]
}

@test "figures outside their range are usage errors" {
    for wrong in "--beta1 1" "--beta2 -0.1" "--epsilon -1" "--lr -1" "--threads 0" \
                 "--deadline -1" "--warn-after -1" "--report-every 1.5steps" "--lost-after 9" "--lost-after 501" "--checkpoint-every 0" "--eval-every 0" "--steps 0" \
                 "--warmup 1.5" "--lr-every 0epochs" "--lr-length 3days" "--lr-factor -1" \
                 "--lr-final -1" "--clip-norm -1" "--loss-scale 0.5" "--loss-scale 48" "--label-smoothing 1.5" "--ema 1" \
                 "--trust-coefficient -1" "--lr-schedule steep" "--best perplexity" \
                 "--on-nan hope" "--loss-spike 0.5"; do
        run train --steps 1 $wrong
        echo "$wrong: $status $output"
        [ "$status" -eq 2 ]
        [[ "$output" == *"${wrong% *}: expected"* ]]
    done
}

@test "a dry run plans and writes nothing" {
    run train --steps 2 --dry-run --log log --checkpoint saved
    [ "$status" -eq 0 ]
    [[ "$output" == *"plan: "* ]]
    [ ! -e log ] && [ ! -e saved ]
}

@test "quiet says nothing, verbose more than usual" {
    train --steps 2 --quiet 2>quiet
    [ ! -s quiet ]
    train --steps 2 2>usual
    train --steps 2 --verbose 2>verbose
    [ "$(wc -l <verbose)" -gt "$(wc -l <usual)" ]
}

@test "checkpoints and evaluations come as often as asked for" {
    train --steps 6 --checkpoint saved --checkpoint-every 2 --eval-every 3 --log log \
        --test "$demo/digits-test.safetensors"
    [ "$(grep -c '"event":"checkpoint"' log)" -eq 3 ]
    [ "$(grep -c '"event":"evaluation"' log)" -ge 2 ]
    grep -q '"event":"evaluation","step":3,' log
}

@test "the backend and the threads that were asked for run" {
    train --steps 1 --backend reference --log log
    grep -q '"backend":"reference"' log
    train --steps 1 --threads 2 --log log
    grep -q '2 threads' log
}

# saved KEY: of the optimizer in the checkpoint of step 4.
saved() {
    python3 -c 'import json, sys
print(json.load(open("c/step-00000004/state.json"))["optimizer"][sys.argv[1]])' "$1"
}

@test "a resume keeps of the optimizer what the options do not say" {
    command -v python3 >/dev/null || skip "no python3"
    train -q --steps 2 --checkpoint c --optimizer adamw --lr 0.25 --beta2 0.9
    train -q --steps 4 --checkpoint c --resume --lr 0.125
    [ "$(saved name) $(saved lr) $(saved beta2) $(saved weight_decay)" = "adamw 0.125 0.9 0.01" ]
    rm -r c/step-00000004
    echo step-00000002 >c/latest
    train -q --steps 4 --checkpoint c --resume --optimizer adamw --weight-decay 0
    [ "$(saved name) $(saved lr) $(saved beta2) $(saved weight_decay)" = "adamw 0.25 0.9 0.0" ]
    run train --steps 6 --checkpoint c --resume --optimizer sgd
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"made with --optimizer adamw"* ]]
}

@test "a plan and a checkpoint have their precision and optimizer, and refuse others" {
    "$TASUKI" plan "$demo/digits.onnx" --data "$demo/digits-train.safetensors" \
        --batchnorm-samples 32 --global-batch 32 --no-cache \
        --precision float64 --optimizer adam -o plan.json
    go="train plan.json --data $demo/digits-train.safetensors --steps 2 --no-cache"
    "$TASUKI" $go -q --log log --checkpoint c --lr 0.5
    grep -q '"backend":"reference".*"optimizer":{"name":"adam","lr":0.5,.*"beta2":0.999' log
    grep -q '"precision": *"float64"' c/step-00000002/state.json
    train -q --steps 3 --checkpoint c --resume --log log
    grep -q '"backend":"reference".*"optimizer":{"name":"adam","lr":0.5,' log
    while IFS='|' read -r command message; do
        run $command
        echo "$command: $status $output"
        [ "$status" -eq 1 ]
        [[ "$output" == *"$message"* ]]
    done <<END
$TASUKI $go --optimizer sgd|plan.json: made for --optimizer adam, not sgd: plan again
$TASUKI $go --precision float32|plan.json: made with --precision float64, not float32
train --steps 4 --checkpoint c --resume --precision float32|c/step-00000003: made with --precision float64, not float32
train --steps 4 --checkpoint c --resume --optimizer sgd|c/step-00000003: made with --optimizer adam, not sgd
END
}

@test "a plan that has lists of several stages for a rank runs under them, whether asked for or not" {
    data="--data $demo/digits-train.safetensors --backend reference --no-cache"
    flat=flat:1,bandwidth=1e9,latency=0
    "$TASUKI" plan "$demo/digits.onnx" $data --cluster $flat --global-batch 32 \
        --micro-batches 4 --stages 2 --schedule zb-v -o plan.json >table
    "$TASUKI" simulate plan.json $data --format schedule -o list
    python3 -c 'import json
plan = json.load(open("plan.json"))
plan["instructions"] = open("list").read().splitlines()
plan["schedule_options"]["chunks"] = 1
json.dump(plan, open("listed.json", "w"))'
    for schedule in "" "--schedule list"; do
        run "$TASUKI" train listed.json $data --cluster $flat --steps 1 $schedule
        echo "$output"
        [ "$status" -eq 0 ]
    done
}

# best KEY: of what the checkpoint in c/best says of itself.
best() {
    python3 -c 'import json, sys
at = open("c/best/latest").read().strip()
print(json.load(open("c/best/" + at + "/state.json"))["best"][sys.argv[1]])' "$1"
}

# As where a run is killed after it kept its best and before it wrote its own checkpoint.
@test "a resume replaces the best that is there only by a better one" {
    command -v python3 >/dev/null || skip "no python3"
    go="train -q --checkpoint c --best loss --test $demo/digits-test.safetensors
        --checkpoint-every 20 --eval-every 20"
    tested() { sed -nE 's/.*"evaluation","step":'$1',"loss":([^,]*),.*/\1/p' log; }
    $go --steps 40 --lr 0.02 --log log
    [ "$(best step)" -eq 40 ]
    value=$(best value)
    first=$(tested 20)
    rm -r c/step-00000040
    echo step-00000020 >c/latest
    # Better than after step 20, but not than what is kept.
    $go --steps 40 --resume --lr 0.001 --log log
    python3 -c 'import sys; a, b, c = map(float, sys.argv[1:]); assert a < b < c' \
        "$value" "$(tested 40 | tail -n 1)" "$first"
    [ "$(best step) $(best value)" = "40 $value" ]
    rm -r c/best
    $go --steps 60 --resume
    [ "$(best step)" -eq 60 ]
    echo '{' >c/best/step-00000060/state.json
    run $go --steps 80 --resume
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"c/best/step-00000060/state.json"* ]]
}

@test "a recipe is in the log, and what does not go together is a usage error" {
    train -q --steps 3 --lr 0.5 --warmup 1epoch --lr-schedule step --lr-every 2epochs --ema 0.5 \
        --clip-norm 1 --no-decay '*.bias' --log log
    grep -q '"lr_schedule":"step","warmup":45,"lr_every":90,.*"no_decay":\["\*.bias"\]' log
    [ "$(grep -c '^{"step".*"lr":0.0[0-9]*,.*"gradient_norm":[0-9]' log)" -eq 3 ]
    test=$demo/digits-test.safetensors
    while IFS='|' read -r options message; do
        run train --steps 5 $options
        echo "$status: $output"
        [ "$status" -eq 2 ]
        [[ "$output" == *"$message"* ]]
    done <<END
--best loss --test $test|--best needs --checkpoint and --test
--best loss --checkpoint c|--best needs --checkpoint and --test
--eval-ema --test $test|--eval-ema needs --ema
--lr-schedule cosine --warmup 6|--warmup: 6 steps, but --lr-schedule cosine has 5
--no-decay nosuch|--no-decay "nosuch" matches no initializer
END
}

@test "averages are exported where they were kept" {
    train -q --steps 3 --ema 0.5 --checkpoint c --lr 0.5
    "$TASUKI" export c -o a.safetensors
    "$TASUKI" export c --ema -o b.safetensors
    run cmp a.safetensors b.safetensors
    [ "$status" -eq 1 ]
    train -q --steps 3 --checkpoint d
    run "$TASUKI" export d --ema -o d.onnx
    [ "$status" -eq 1 ]
    [[ "$output" == *"it was made without --ema"* ]]
    train -q --steps 4 --checkpoint d --resume --ema 0.5
    "$TASUKI" export d --ema -o d.onnx
    "$TASUKI" export d --no-ema -o e.onnx
}

@test "averages and evaluations have the memory that the plan foresaw" {
    for ema in 0 0.9; do
        train -q --steps 2 --ema $ema --log log --test "$demo/digits-test.safetensors"
        grep -o '"peak":\[[0-9]*' log | tr -dc '0-9\n' >>peaks
    done
    [ "$(sed -n 2p peaks)" -gt "$(sed -n 1p peaks)" ]
    run train --steps 2 --ema 0.9 --memory "$(sed -n 1p peaks)"
    echo "$output"
    [ "$status" -ne 0 ]
    train -q --steps 2 --ema 0.9 --memory "$(sed -n 2p peaks)" --replicas 1
}

@test "a trace is JSON that a viewer of timelines reads" {
    train --steps 2 --trace trace.json
    python3 -c 'import json; t = json.load(open("trace.json"))
events = t["traceEvents"] if isinstance(t, dict) else t
assert any(e.get("ph") == "X" and e["dur"] >= 0 for e in events)'
}

@test "the same seed gives the same curve with and without a cache of costs" {
    export XDG_CACHE_HOME=$PWD/cache
    a=$(losses --cache --deadline 60)
    b=$(losses --cache --no-keep-plan)
    [ "$a" = "$b" ]
}

@test "export puts the parameters into the model that was asked for" {
    train --steps 2 --checkpoint saved
    cp "$demo/digits.onnx" other.onnx
    "$TASUKI" export saved -o a.onnx
    "$TASUKI" export saved --model other.onnx -o b.onnx
    cmp a.onnx b.onnx
    run cmp a.onnx other.onnx
    [ "$status" -eq 1 ]
    run "$TASUKI" export saved --model nosuch.onnx -o c.onnx
    [ "$status" -eq 1 ]
    [[ "$output" == *nosuch.onnx* ]]
    [ ! -e c.onnx ]
}

@test "a micro-batch has the size that was asked for" {
    run train --micro-batch-size 32 --dry-run --steps 1 --batchnorm-samples 8
    [[ "$output" == *"1 micro-batch of 32"* ]]
    run train --micro-batch-size 8 --dry-run --steps 1 --batchnorm-samples 8
    [[ "$output" == *"4 micro-batches of 8"* ]]
}

@test "without fusion the model's own operators remain" {
    "$TASUKI" inspect "$demo/digits.onnx" --no-fuse | grep -q '^Gemm '
    "$TASUKI" inspect "$demo/digits.onnx" --fuse | grep -q '^Linear '
}

@test "topo describes a machine recorded elsewhere and refuses what is none" {
    command -v lstopo-no-graphics >/dev/null || skip "hwloc's tools are not installed"
    lstopo-no-graphics --of xml there.xml
    run "$TASUKI" topo --input there.xml
    [ "$status" -eq 0 ]
    [[ "$output" == *"from there.xml"* ]]
    echo '<x' >bad.xml
    run "$TASUKI" topo --input bad.xml
    [ "$status" -eq 1 ]
    [[ "$output" == *"bad.xml: not a topology"* ]]
}
