# SPDX-License-Identifier: MIT
# How often the host waits for a GPU, and what it hands over: counted by the stand-in of the CUDA runtime.

load common

setup() {
    use_stand_in
    printf 'gpu 0000:1b:00.0\n' >machine
    export TASUKI_MEASURE=none
}

# net LAYERS [WIDTH]: $model trains a network of so many layers, each with weights and a bias.
net() {
    local i width=${2:-8}
    {
        echo "input image float batch,1,8,8
node Flatten image -> h0
init w0 float 64,$width
init b0 float $width
node Gemm h0,w0,b0 -> h1"
        for ((i = 1; i < $1; i++)); do
            echo "init w$i float $width,$width
init b$i float $width
node Gemm h$i,w$i,b$i -> h$((i + 1))"
        done
        echo "init w float $width,10
node MatMul h$1,w -> y
output y"
    } | "$builddir/tests/make_onnx" "net$1-$width.onnx"
    model="net$1-$width.onnx --data $srcdir/etc/demo/digits-train.safetensors --loss cross-entropy:y,label"
    model="$model --threads 1 -q"
    [ -e "net$1-$width.json" ] || "$TASUKI" profile $model --batch-size 4,8,16 -o "net$1-$width.json"
    model="$model --cost net$1-$width.json --global-batch 16 --lr 0.001"
}

# counts STEPS OPTION...: how often a run waits for a stream, launches a kernel that is in no graph, and is
# given memory of the GPU.
counts() {
    local steps=$1
    shift
    rm -f counts
    timeout -s KILL 300 env TASUKI_FAKE_COUNT="$PWD/counts" \
        LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" \
        "$TASUKI" train $model --device cuda --steps "$steps" "$@" 2>messages || cat messages >&2
    sed -nE 's/^syncs ([0-9]+) launches ([0-9]+) mallocs ([0-9]+)$/\1 \2 \3/p' counts
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

@test "a stage has its memory from one allocation, whatever lies in it" {
    local plain kept
    net 1
    plain=($(counts 1 --stages 1 --micro-batches 2 --optimizer sgd))
    kept=($(counts 1 --stages 1 --micro-batches 2 --optimizer adam))
    echo "${plain[*]}, ${kept[*]}"
    [ "${plain[2]}" -eq "${kept[2]}" ]
}

@test "however large parameters are, loading them waits for pieces alone, each before it is used anew" {
    local small large
    ! stand_in_is_sanitized || skip "built with other sanitizers"
    net 1
    small=($(counts 1 --stages 1 --micro-batches 2))
    net 1 16384
    large=($(TASUKI_FAKE_WATCH=1 counts 1 --stages 1 --micro-batches 2))
    echo "${small[*]}, ${large[*]}"
    [ "${small[0]}" -eq "${large[0]}" ]
    TASUKI_FAKE_WATCH=1 TASUKI_FAKE_MUTATE="hasty-query 1" run counts 1 --stages 1 --micro-batches 2
    echo "$output"
    [[ "$output" =~ (reads what the host writes|the host writes what stream [0-9]+ reads),.*" of 1048576 on the host" ]]
}

losses() {
    sed -nE 's/^\{"step":.*"loss":([^,]*),.*/\1/p' "$1"
}

@test "norms of tensors of which ranks have parts are those of all of it" {
    local mlp=$srcdir/tests/data/model/mlp optimizer where
    printf 'gpu 0000:1b:00.0\ngpu 0000:3d:00.0\n' >machine
    model="$mlp/model.onnx --data $mlp/train.safetensors --loss cross-entropy:logits,label --threads 1 -q"
    "$TASUKI" profile $model --batch-size 6,12,24 -o cost.json
    model="$model --cost cost.json --global-batch 24 --steps 4 --lr 0.03 --weight-decay 0.125"
    model="$model --stages 1 --micro-batches 2"
    for optimizer in lamb "lars --trust-coefficient 0.5 --clip-norm 1"; do
        "$TASUKI" train $model --device cpu --no-decay "*bias*" --optimizer $optimizer --log cpu
        LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" TASUKI_FAKE_SEED=$RANDOM timeout -s KILL 300 \
            "$TASUKI" train $model --device cuda --no-decay "*bias*" --optimizer $optimizer --log cuda \
            --ranks-in-process 2 --replicas 2 --zero
        paste <(losses cpu) <(losses cuda)
        paste <(losses cpu) <(losses cuda) | awk 'function abs(x) { return x < 0 ? -x : x }
            abs($1 - $2) > 1e-5 * abs($2) { bad = 1 }
            END { exit bad || NR != 4 }'
        rm cpu cuda
    done
}
