# What all commands do with options alike; train stands for those that take a model.

setup() {
    cd "$BATS_TEST_TMPDIR"
}

@test "print-config writes a job file that gives the same job file again" {
    "$TASUKI" train net.onnx --global-batch 8 --no-shuffle --cost a --cost b --print-config >1.conf
    grep -qx 'model = net.onnx' 1.conf
    grep -qx 'shuffle = no' 1.conf
    "$TASUKI" train 1.conf --print-config >2.conf
    diff 1.conf 2.conf
}

@test "an option beats the job file, and that the environment" {
    printf 'model = net.onnx\nlr = 0.5\nseed = 3\n' >job.conf
    TASUKI_LR=0.1 TASUKI_SEED=9 TASUKI_STEPS=7 \
        "$TASUKI" train job.conf --seed 4 --print-config >out
    grep -qx 'lr = 0.5' out
    grep -qx 'seed = 4' out
    grep -qx 'steps = 7' out
}

@test "a mistake in a job file is named with its line" {
    printf 'model = net.onnx\n\nlearning-rate = 1\n' >job.conf
    run "$TASUKI" train job.conf
    [ "$status" -eq 2 ]
    [[ "$output" == *"job.conf:3: unknown option learning-rate"* ]]
}

@test "a number that is none is a usage error that names the option" {
    printf 'x' >net.onnx
    run "$TASUKI" train net.onnx --data d --steps 1x
    [ "$status" -eq 2 ]
    [[ "$output" == *'--steps: expected an integer'*'got "1x"'* ]]
}

@test "nothing is no file, wherever it stands" {
    printf 'model = net.onnx\nlog =\n' >job.conf
    while IFS='|' read -r command message; do
        run eval "$command"
        echo "$command: $status $output"
        [ "$status" -eq 2 ]
        [[ "$output" == *"$message"* ]]
    done <<'END'
"$TASUKI" topo -o ''|--output: expected FILE, got ""
"$TASUKI" plan net.onnx --output=|--output: expected FILE, got ""
TASUKI_LOG= "$TASUKI" train net.onnx|TASUKI_LOG: expected FILE, got ""
"$TASUKI" train job.conf|job.conf:2: log: expected FILE, got ""
END
}

@test "a word that is none of the option's is refused alike by every command that takes it" {
    demo=$srcdir/etc/demo
    given="$demo/digits.onnx --data $demo/digits-train.safetensors"
    for command in "plan --global-batch 32" "train --global-batch 32 --steps 1" profile; do
        run "$TASUKI" $command $given --backend refrence
        echo "$command: $output"
        [ "$status" -eq 2 ]
        [[ "$output" == *'--backend: expected cpu or reference, got "refrence"'* ]]
        run "$TASUKI" $command $given --optimizer rmsprop
        echo "$command: $output"
        [ "$status" -eq 2 ]
        [[ "$output" == *'--optimizer: expected sgd, momentum, nesterov, adam, adamw, lars or lamb, got "rmsprop"'* ]]
        run "$TASUKI" $command $given --precision float64 --backend cpu
        echo "$command: $output"
        [ "$status" -eq 2 ]
    done
    run "$TASUKI" train $given --global-batch 32 --steps 1 --schedule zigzag
    [[ "$output" == *'--schedule: expected gpipe, 1f1b, interleaved, zb-h1, zb, zb-v or 2bw or a file, got "zigzag"'* ]]
}
