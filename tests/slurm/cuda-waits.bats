# SPDX-License-Identifier: MIT
# How often the host waits for a GPU, and what it hands over: counted by the stand-in of the CUDA runtime.

load common

setup() {
    use_stand_in
    printf 'gpu 0000:1b:00.0\n' >machine
    export TASUKI_MEASURE=none
}

# net LAYERS: $model trains a network of so many layers, each with weights and a bias.
net() {
    local i
    {
        echo "input image float batch,1,8,8
node Flatten image -> h0
init w0 float 64,8
init b0 float 8
node Gemm h0,w0,b0 -> h1"
        for ((i = 1; i < $1; i++)); do
            echo "init w$i float 8,8
init b$i float 8
node Gemm h$i,w$i,b$i -> h$((i + 1))"
        done
        echo "init w float 8,10
node MatMul h$1,w -> y
output y"
    } | "$builddir/tests/make_onnx" "net$1.onnx"
    model="net$1.onnx --data $srcdir/etc/demo/digits-train.safetensors --loss cross-entropy:y,label"
    model="$model --threads 1 -q"
    [ -e "net$1.json" ] || "$TASUKI" profile $model --batch-size 4,8,16 -o "net$1.json"
    model="$model --cost net$1.json --global-batch 16 --lr 0.001"
}

# counts STEPS OPTION...: how often a run waits for a stream, and launches a kernel that is in no graph.
counts() {
    local steps=$1
    shift
    timeout -s KILL 300 env TASUKI_FAKE_COUNT="$PWD/counts" \
        LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" \
        "$TASUKI" train $model --device cuda --steps "$steps" "$@" 2>messages || cat messages >&2
    sed -nE 's/^syncs ([0-9]+) launches ([0-9]+)$/\1 \2/p' counts
}

# per_step OPTION...: the same of one of the steps that all are alike.
per_step() {
    local few many
    few=($(counts 3 "$@"))
    many=($(counts 5 "$@"))
    echo "$(((many[0] - few[0]) / 2)) waits $(((many[1] - few[1]) / 2)) launches"
}

@test "however many tensors there are, a step waits as often, and launches as much for its update" {
    local layers wanted options
    set -f
    while IFS=: read -r wanted options; do
        for layers in 1 12; do
            net $layers
            echo "$layers layers, $options"
            run per_step --stages 1 --micro-batches 2 $options
            echo "$output"
            [ "$output" = "$wanted" ]
        done
    done <<'END'
0 waits 3 launches:--optimizer adamw
0 waits 3 launches:--optimizer adamw --no-decay b*
0 waits 3 launches:--optimizer adamw --no-decay b* --clip-norm 1
0 waits 4 launches:--optimizer momentum --no-decay b* --ema 0.9
0 waits 7 launches:--optimizer lars --no-decay b*
0 waits 7 launches:--optimizer lamb --no-decay b*
0 waits 3 launches:--optimizer adamw --schedule 2bw
0 waits 3 launches:--optimizer adamw --clip-norm 1 --schedule 2bw
END
}
