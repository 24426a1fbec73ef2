# SPDX-License-Identifier: MIT
# Training in 16 bits on GPUs, over stand-ins, beside float32.

load common
load cuda

# Numbers of 8 bits, or of 11: a loss of some steps.
near_curve() {
    paste <(losses "$1") <(losses "$2") | awk -v bound="$([ "$1" = bf16 ] && echo 1e-2 || echo 1.25e-3)" '
        function abs(x) { return x < 0 ? -x : x }
        abs($1 - $2) > bound * abs($2) { print; bad = 1 }
        END { exit bad || NR != 3 }'
}

# The first layers of networks whose images have their channels last, of digits.
pooled_digits() {
    cat <<'TEXT'
input image float batch,1,8,8
init a float 8,1,3,3
node Conv image,a -> c0 pads=[1,1,1,1]
init s0 float 8 = 1,1,1,1,1,1,1,1
init z0 float 8 = 0,0,0,0,0,0,0,0
init m0 float 8 = 0,0,0,0,0,0,0,0
init v0 float 8 = 1,1,1,1,1,1,1,1
node BatchNormalization c0,s0,z0,m0,v0 -> n0
node Relu n0 -> r0
node MaxPool r0 -> p0 kernel_shape=[3,3] strides=[2,2] pads=[0,0,1,1]
TEXT
}

# make_last [SCALE]: last.onnx, of digits: images of as many channels as have them last, with a way
# around, and this as the first BatchNorm's scale of the last one.
make_last() {
    { pooled_digits; cat; } <<'TEXT' | sed "/^init s0/s/1\$/${1-1}/" | "$builddir/tests/make_onnx" last.onnx
init b float 16,8,3,3
init b1 float 16
node Conv p0,b,b1 -> c1 pads=[1,1,1,1]
init s1 float 16 = 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1
init z1 float 16 = 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0
init m1 float 16 = 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0
init v1 float 16 = 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1
node BatchNormalization c1,s1,z1,m1,v1 -> n1
node Relu n1 -> r1
init d float 16,16,3,3
node Conv r1,d -> c2 pads=[1,0,1,2]
init w float 16,8,1,1
node Conv p0,w -> short
node Add c2,short -> sum
node Relu sum -> r2
node MaxPool r2 -> p2 kernel_shape=[2,2] strides=[1,1]
node GlobalAveragePool p2 -> g
node Flatten g -> h
init i float 16,10
node MatMul h,i -> y
output y
TEXT
}

@test "16 bits: no Transpose is made around an attention, and its curve is near float32's" {
    local name net recompute
    for name in causal grouped; do
        net="$srcdir/tests/data/model/$name/model.onnx --loss cross-entropy:y,t --threads 1 -q
            --data $srcdir/tests/data/model/$name/train.safetensors"
        # Of queries and keys that are turned by a rotary embedding first they are: two, and two gradients.
        on_fake "$TASUKI" profile $net --device cuda --precision bf16 --batch-size 8 --format text \
            >table
        [ "$(awk '$1 == "Transpose" { n = $2 } END { print n + 0 }' table)" -eq \
            "$([ "$name" = grouped ] && echo 4 || echo 0)" ]
        "$TASUKI" profile $net --batch-size 4,8 -o cost.json
        net="$net --cost cost.json --device cuda --global-batch 8 --steps 3 --lr 0.03 --stages 1"
        on_fake "$TASUKI" train $net --micro-batches 1 --log float32
        for recompute in none full; do
            TASUKI_FAKE_WATCH=1 on_fake "$TASUKI" train $net --precision bf16 --micro-batches 2 \
                --recompute $recompute --log bf16
            near_curve bf16 float32
        done
    done
}

# cuDNN is asked for two graphs, or none: a mask that leaves nothing of a row it does not get, as its gradient
# would be too large (attention_large.h).
@test "16 bits: masks that are known and leave something of each row are cuDNN's" {
    local mask shape plans parts
    below() { awk -v hide="$1" -v row="$2" 'BEGIN {
        for (i = 0; i < 64; i++) {
            seen = i % 8 <= int(i / 8) && int(i / 8) != row
            printf("%s%s", i ? "," : "", seen ? 0.25 * (i % 3) : hide)
        } }'; }
    for mask in "8,8 $(below -1e9 8) 2" "1,1,8,8 $(below -inf 8) 2" "8,8 $(below -1e9 5) 0" \
        "1,8 0,0.5,0,-1e9,0,1,0,0 2" "1,8 -inf,0.5,0,-1e9,0,1,0,0 2"; do
        read -r shape mask plans <<<"$mask"
        echo "$shape, $plans plans"
        "$builddir/tests/make_onnx" net.onnx <<TEXT
input image float batch,1,8,8
init wq float 8,8
init wk float 8,8
init wv float 8,8
node MatMul image,wq -> q
node MatMul image,wk -> k
node MatMul image,wv -> v
node Transpose k -> kt perm=[0,1,3,2]
node MatMul q,kt -> s
const scale float 1 = 0.35
node Mul s,scale -> scaled
const mask float $shape = $mask
node Add scaled,mask -> masked
node Softmax masked -> p axis=-1
node MatMul p,v -> y0
node Flatten y0 -> h
init w float 64,10
node MatMul h,w -> y
output y
TEXT
        rm -rf cache float32 bf16
        take_net
        model="$model --cost cost.json --device cuda"
        on_fake "$TASUKI" train $model --micro-batches 1 --log float32
        # So few bytes that the gradient takes turns.
        TASUKI_CACHE_DIR=$PWD/cache TASUKI_CUDA_SCORES=300 TASUKI_FAKE_WATCH=1 \
            on_fake "$TASUKI" train $model --precision bf16 --micro-batches 2 --log bf16
        near_curve bf16 float32
        [ "$(find cache -name 'cudnn-*.plan' | wc -l)" -eq "$plans" ]
        parts='"Attention":1,"AttentionGrad":1'
        grep -F "\"unfused\":{$([ "$plans" -eq 2 ] || echo "$parts")}}" bf16
    done
}

# What is hidden depends on the samples: all alike by numbers of which a row's logarithm holds nothing else,
# some by such numbers, by infinite ones from a row's first key on, by a bool; and PyTorch's way with queries
# that see nothing, of which there are some. cuDNN is asked for two graphs, with heads turned and not.
@test "16 bits: masks that are inputs, of numbers or bools, are cuDNN's" {
    local mask nodes precision plans
    local below="node ReduceMax pairs -> most axes=[3] keepdims=1
const half float 1 = 0.5
node Mul most,half -> limit
node Less pairs,limit -> hidden
const zero float 1 = 0"
    for mask in large numbers infinite keys causal bool unseen fill; do
        plans=4
        case $mask in
        large) nodes="const none float 1 = 0
node Mul pairs,none -> near
const far float 1 = -1e8
node Add near,far -> mask
node Add scaled,mask -> masked" ;;
        numbers) nodes="$below
const never float 1 = -1e9
node Where hidden,never,zero -> mask
node Add scaled,mask -> masked" ;;
        infinite) nodes="$below
const never float 1 = -inf
node Where hidden,never,zero -> mask
node Add scaled,mask -> masked" ;;
        keys) nodes="node ReduceMax pairs -> row axes=[2] keepdims=1
const some float 1 = 0.1
node Less row,some -> hidden
const zero float 1 = 0
const never float 1 = -inf
node Where hidden,never,zero -> mask
node Add scaled,mask -> masked" ;;
        causal) nodes="const slope float 1 = -3
node Mul pairs,slope -> mask
node Add scaled,mask -> with
const row float 32,1 = $(seq -s, 0 31)
const column float 1,32 = $(seq -s, 0 31)
node Less row,column -> later
const never float 1 = -inf
node Where later,never,with -> masked" ;;
        bool) nodes="$below
const never float 1 = -inf
node Where hidden,never,scaled -> masked" ;;
        # Not of what stands for no infinite number.
        fill) nodes="$below
const never float 1 = -1e9
node Where hidden,never,scaled -> masked"
            plans=0 ;;
        unseen) nodes="const some float 1 = 0.9
node Less pairs,some -> hidden
const zero float 1 = 0
const never float 1 = -inf
node Where hidden,never,zero -> mask
node Add scaled,mask -> masked" ;;
        esac
        if [ $mask = unseen ]; then
            nodes="$nodes
node Softmax masked -> p0 axis=-1
node IsNaN p0 -> nothing
node Where nothing,zero,p0 -> p"
        else
            nodes="$nodes
node Softmax masked -> p axis=-1"
        fi
        echo "$mask"
        "$builddir/tests/make_onnx" net.onnx <<TEXT
input image float batch,1,8,8
const pixels int64 4 = 0,1,32,2
node Reshape image,pixels -> x
node Transpose x -> xt perm=[0,1,3,2]
node MatMul x,xt -> pairs
init wq float 2,16
init wk float 2,16
init wv float 2,16
node MatMul x,wq -> q0
node MatMul x,wk -> k0
node MatMul x,wv -> v0
const heads int64 4 = 0,32,2,8
node Reshape q0,heads -> q1
node Reshape k0,heads -> k1
node Reshape v0,heads -> v1
node Transpose q1 -> q perm=[0,2,1,3]
node Transpose k1 -> kt perm=[0,2,3,1]
node Transpose v1 -> v perm=[0,2,1,3]
node MatMul q,kt -> s
const scale float 1 = 0.35
node Mul s,scale -> scaled
$nodes
node MatMul p,v -> y0
node Transpose y0 -> y1 perm=[0,2,1,3]
node Flatten y1 -> h
init w float 512,10
node MatMul h,w -> y
output y
TEXT
        take_net
        rm -f float64
        "$TASUKI" train $model --backend reference --precision float64 --micro-batches 1 --log float64
        for precision in bf16 fp16; do
            [ $precision = bf16 ] || [ $mask = unseen ] || continue
            rm -rf cache $precision
            TASUKI_CACHE_DIR=$PWD/cache TASUKI_CUDA_SCORES=300 TASUKI_FAKE_WATCH=1 \
                on_fake "$TASUKI" train $model --cost cost.json --device cuda --precision $precision \
                    --micro-batches 2 --log $precision
            near_curve $precision float64
            find cache -name 'cudnn-*.plan' | tee plans
            [ "$(wc -l <plans)" -eq $plans ]
        done
    done
}

@test "16 bits: curves of one stage, of two, run again, and of replicas are near float32's" {
    local plan name net ranks precision
    drawn 1 transformer transformer-post tied
    for name in "${drawn[@]}"; do
        net="$srcdir/tests/data/model/$name/model.onnx --optimizer momentum --threads 1 -q
            --data $srcdir/tests/data/model/$name/train.safetensors"
        "$TASUKI" profile $net --batch-size 4,8 -o cost.json
        net="$net --cost cost.json --device cuda --global-batch 8 --steps 3 --lr 0.03"
        on_fake "$TASUKI" train $net --stages 1 --micro-batches 1 --log float32
        for plan in "--stages 1" "--stages 1 --recompute full" "--stages 2 --replicas 1,1" \
            "--stages 1 --replicas 2"; do
            # What is in order is followed of one rank in a process alone.
            case $plan in
            *1,1 | *2) ranks=2; unset TASUKI_FAKE_WATCH ;;
            *) ranks=1; export TASUKI_FAKE_WATCH=1 ;;
            esac
            for precision in bf16 fp16; do
                on_fake "$TASUKI" train $net $plan --precision $precision --micro-batches 2 \
                    --log $precision --ranks-in-process $ranks
                grep -q "\"device\":\"Fake GPU, sm_90, CUDA [0-9.]*, ${precision^^}\"" $precision
                near_curve $precision float32
            done
            [ "$(grep -c '"loss_scale":65536,"skipped":false}' fp16)" -eq 3 ]
        done
    done
    for precision in bf16 fp16; do
        run on_fake "$TASUKI" train $model --device cpu --precision $precision
        [ "$status" -eq 2 ]
        [[ "$output" == *"--precision $precision needs --device cuda"* ]]
    done
}

# Bytes that all stages send for a micro-batch, with what fills messages up.
sent() {
    sed -nE 's/.*stage [0-9]+: ([0-9]+) bytes of .* for each micro-batch$/\1/p' "$1" |
        awk '{ n += $1 } END { print n }'
}

tested() {
    sed -nE 's/.*"event":"evaluation".*"loss":([^,]*),.*/\1/p' "$1"
}

# What replicas sum is summed in another order.
@test "16 bits: what crosses borders has them, and curves are those of one stage, to the bit" {
    local name net plan pooled precision ranks test data=$srcdir/tests/data/model
    export TASUKI_MEASURE=none
    make_last
    drawn 2 "transformer bf16" "tied bf16" "last bf16" "transformer fp16" "tied fp16" "last fp16"
    for net in "${drawn[@]}"; do
        read -r name precision <<<"$net"
        net="$data/$name/model.onnx --data $data/$name/train.safetensors"
        test=$data/$name/train.safetensors
        if [ $name = last ]; then
            net="last.onnx --data $srcdir/etc/demo/digits-train.safetensors --batchnorm-samples 2"
            test=$srcdir/etc/demo/digits-test.safetensors
        fi
        net="$net --optimizer momentum --threads 1"
        "$TASUKI" profile $net --batch-size 4,16 -q -o cost.json
        net="$net --device cuda --global-batch 16 --micro-batches 4 --steps 3 --lr 0.03"
        net="$net --cost cost.json --test $test --eval-every 3"
        on_fake "$TASUKI" train $net -q --precision $precision --stages 1 --log one
        drawn 1 "--stages 2 --replicas 1,1 --recompute full" "--schedule gpipe --stages 3 --replicas 1,1,1" \
            "--schedule zb-h1 --stages 2 --replicas 1,1 --recompute selective" \
            "--schedule interleaved --stages 4 --replicas 1,1,1,1" \
            "--schedule zb-v --stages 4 --replicas 1,1,1,1"
        for plan in "${drawn[@]}" "--stages 3 --replicas 1,2,1 --micro-batches 2"; do
            case $plan in *2,1*) ranks=4 ;; *gpipe*) ranks=3 ;; *) ranks=2 ;; esac
            echo "$name $precision $plan"
            on_fake "$TASUKI" train $net -v $plan --ranks-in-process $ranks --precision $precision --log two 2>err
            on_fake "$TASUKI" train $net -v $plan --ranks-in-process $ranks --log wide 2>err.wide
            paste <(losses one) <(losses two) <(losses wide)
            if [ $ranks -eq 4 ]; then
                same_curve two one
            else
                [ "$(losses one)" = "$(losses two)" ]
                [ -n "$(tested one)" ]
                [ "$(tested one)" = "$(tested two)" ]
            fi
            # But for an embedding's sum, or 16 float32 of each of 4 images, cut behind the last pooling.
            pooled=0
            [ $name != last ] || pooled=$((256 * $(grep -c ' 256 bytes of values' err || true)))
            echo "$(sent err) bytes, $(sent err.wide) of float32, $pooled of both are pooled"
            [ $((3 * ($(sent err) - pooled))) -lt $((2 * ($(sent err.wide) - pooled))) ]
        done
    done
}

@test "16 bits: messages are planned with as they are sent, by costs that were measured and by a roofline" {
    local net="last.onnx --loss cross-entropy:y,label --batchnorm-samples 2 -q" run precision sent
    local data="--data $srcdir/etc/demo/digits-train.safetensors --threads 1"
    run="--stages 2 --replicas 1,1 --global-batch 8 --micro-batches 2"
    make_last
    on_fake "$TASUKI" profile $net $data --batch-size 4 --device cuda --precision bf16 -o cost.json
    on_fake "$TASUKI" train ${net/-q/-v} $data $run --cost cost.json --device cuda --precision bf16 \
        --ranks-in-process 2 --steps 1 --log log 2>err
    sent=$(grep -oE '"sent":[0-9]+' log | head -n 1 | cut -d: -f2)
    grep 'bytes of' err
    grep -q "stage 0: $sent bytes of values go to stage 1," err
    grep -q "stage 1: $sent bytes of gradients go to stage 0," err
    # Behind what is averaged over images little is left, in float32.
    for precision in float32 bf16 fp16; do
        "$TASUKI" profile $net --roofline --cluster dgx-h100:1 --precision $precision --batch-size 4 \
            -o $precision.json
    done
    python3 - <<'END'
import json
wide, bf16, fp16, measured = (json.load(open(f"{name}.json"))["edges"]
                              for name in ("float32", "bf16", "fp16", "cost"))
values = json.load(open("cost.json"))["values"]
forward, back = ([[edge[key][0] for edge in edges] for edges in (wide, bf16, fp16, measured)]
                 for key in ("bytes", "gradient_bytes"))
print(forward, back)
assert forward[1] == forward[2] == forward[3] and back[1] == back[2] == back[3]
assert forward[1] == [n if n == 256 else n / 2 for n in forward[0]]
assert back[1] == [n / 2 for n in back[0]]
# As they are sent they lie within stages.
assert not any("reordered" in edge for edge in measured)
assert 4 * sum("reordered" in value for value in values) < len(values)
END
}

# The stand-in has no groups of three axes in 16 bits: that convolution stays float32, on the GPU. With
# channels that are last are those of "last" alone, but for the first.
@test "16 bits: convolutions, pools and a BatchNorm between them are near float32's" {
    local data=$srcdir/tests/data/model/cnn precision name scale
    "$builddir/tests/make_onnx" volume.onnx <<'TEXT'
input image float batch,1,8,8
node Reshape image,shape -> x
const shape int64 4 = -1,2,8,4
init a float 4,2,3,3
node Conv x,a -> b pads=[1,1,1,1]
node Relu b -> c
const deep int64 5 = -1,4,2,4,4
node Reshape c,deep -> d
init e float 8,2,1,3,3
node Conv d,e -> f group=2 pads=[0,1,1,0,1,1]
node GlobalAveragePool f -> g
node Flatten g -> h
init i float 8,10
node MatMul h,i -> y
output y
TEXT
    make_last
    for name in cnn last volume; do
        model="$name.onnx --data $srcdir/etc/demo/digits-train.safetensors"
        [ $name != last ] || model="$model --batchnorm-samples 4"
        [ $name != cnn ] ||
            model="$data/model.onnx --data $data/train.safetensors --batchnorm-samples 2"
        model="$model --threads 1 -q --optimizer momentum"
        "$TASUKI" profile $model --batch-size 8 -o cost.json
        model="$model --cost cost.json --device cuda --global-batch 8 --steps 3 --lr 0.03 --stages 1"
        on_fake "$TASUKI" train $model --micro-batches 1 --log float32
        for precision in bf16 fp16; do
            TASUKI_FAKE_WATCH=1 on_fake "$TASUKI" train ${model/-q/-v} --precision $precision \
                --micro-batches 1 --log $precision 2>err
            cat err
            [ "$(grep -c 'on the host' err)" -eq 0 ]
            near_curve $precision float32
            [ $name = last ] || continue
            # A BatchNorm that does the Relu behind it gives the bits of both, one by one; where what
            # is between them is 0 in float16, too.
            for scale in 1 1e-8; do
                make_last $scale
                TASUKI_CUDA_CHAINS=0 on_fake "$TASUKI" train $model --precision $precision \
                    --micro-batches 1 --log apart.jsonl --checkpoint apart
                on_fake "$TASUKI" train $model --precision $precision --micro-batches 1 \
                    --log joined.jsonl --checkpoint joined
                [ "$(losses apart.jsonl)" = "$(losses joined.jsonl)" ]
                cmp apart/step-*/shard-0000.safetensors joined/step-*/shard-0000.safetensors
                rm -r apart joined apart.jsonl joined.jsonl
            done
            make_last
        done
    done
    # Parameters that are narrow, the image, what MaxPool has, its gradient, what is pooled and its gradient.
    on_fake "$TASUKI" profile last.onnx --data $srcdir/etc/demo/digits-train.safetensors --threads 1 \
        --batchnorm-samples 4 --loss cross-entropy:y,label --batch-size 4 --device cuda --no-cache \
        --precision bf16 --format text >table
    grep -E '^Reorder +9 ' table
    # Behind both BatchNorms it is theirs.
    grep -E '^Relu +1 ' table
    grep -E '^ReluGrad +1 ' table
    # What cuDNN does not have at all is float32 on the host, as it is without 16 bits.
    printf 'gpu 0000:1b:00.0\nerror cudnnBackendGetAttribute 3000\n' >machine
    on_fake "$TASUKI" train ${model/-q/-v} --micro-batches 1 --precision bf16 --log bf16 2>err
    cat err
    grep -F 'cuda: kernels run on the host: Conv (2), ' err
    grep -oE '"fallbacks":\{.*\}\}' bf16
    grep -F '"fallbacks":{"host":{"Conv":2,"ConvDgrad":1,"ConvWgrad":2},"unfused":{}}' bf16
    near_curve bf16 float32
    # Between stages 16 bits cross all the same.
    on_fake "$TASUKI" train ${model/--stages 1/--stages 3} --replicas 1,1,1 --ranks-in-process 3 \
        --micro-batches 1 --precision bf16 --log bf16
    near_curve bf16 float32
}

# plans KIND: how many of this kind of operation on images are kept, by the number of cuda_image_kind.
plans() {
    find cache -name 'cudnn-*.plan' -exec grep -haoE "image [0-9]+, 0$1" {} + | wc -l
}

# Of three BatchNorms one has a Relu behind it, whose gradient is no library's.
@test "16 bits: BatchNorms and pools by cuDNN where that is asked for, near float32's" {
    local net words precision norms pools recompute
    { pooled_digits; cat; } <<'TEXT' | "$builddir/tests/make_onnx" images.onnx
init b float 8,8,3,3
node Conv p0,b -> c1 pads=[1,1,1,1]
init s1 float 8 = 1,1,1,1,1,1,1,1
init z1 float 8 = 0,0,0,0,0,0,0,0
node BatchNormalization c1,s1,z1,m1,v1 -> n1
init m1 float 8 = 0,0,0,0,0,0,0,0
init v1 float 8 = 1,1,1,1,1,1,1,1
init d float 8,8,1,1
node Conv p0,d -> c2
init s2 float 8 = 1,1,1,1,1,1,1,1
init z2 float 8 = 0,0,0,0,0,0,0,0
node BatchNormalization c2,s2,z2,m2,v2 -> n2
init m2 float 8 = 0,0,0,0,0,0,0,0
init v2 float 8 = 1,1,1,1,1,1,1,1
node Add n1,n2 -> sum
node Relu sum -> r2
node AveragePool r2 -> p2 kernel_shape=[2,2] strides=[1,1] pads=[1,0,0,1]
node MaxPool p2 -> p3 kernel_shape=[2,2] strides=[2,2]
node Flatten p3 -> h
init i float 32,10
node MatMul h,i -> y
output y
TEXT
    net="images.onnx --loss cross-entropy:y,label --data $srcdir/etc/demo/digits-train.safetensors
        --batchnorm-samples 8 --threads 1 --optimizer momentum"
    "$TASUKI" profile $net --batch-size 8 -q -o cost.json
    net="$net --cost cost.json --device cuda --global-batch 16 --micro-batches 2 --steps 3 --lr 0.03"
    net="$net --test $srcdir/etc/demo/digits-test.safetensors --eval-every 3"
    on_fake "$TASUKI" train $net -q --stages 1 --log float32
    drawn 1 "bf16 none" "fp16 full"
    read -r precision recompute <<<"${drawn[0]}"
    for words in norm pool norm,pool; do
        rm -rf cache
        norms=0 pools=0
        [[ $words != *norm* ]] || norms=1
        [[ $words != *pool* ]] || pools=1
        TASUKI_CACHE_DIR=$PWD/cache TASUKI_FAKE_WATCH=1 TASUKI_CUDA_CUDNN=$words \
            on_fake "$TASUKI" train $net -q --stages 1 --precision $precision --recompute $recompute \
            --log $precision
        echo "$precision $words: $(for i in 0 1 2 3 4 5; do plans $i; done | xargs)"
        # BatchNorms of two sizes, one with and one without a Relu, and the gradient of the latter; two
        # pools of maxima, and one of means.
        [ $(plans 0) -eq $((2 * norms)) ]
        [ $(plans 1) -eq $norms ]
        [ $(plans 2) -eq $((2 * pools)) ]
        [ $(plans 4) -eq $((2 * pools)) ]
        [ $(plans 3) -eq $pools ]
        [ $(plans 5) -eq $pools ]
        near_curve $precision float32
        paste <(tested $precision) <(tested float32) | awk '
            { difference = $1 - $2 } END { exit NR != 1 || difference ^ 2 > (1e-2 * $2) ^ 2 }'
        cp $precision one
        # The same again, from plans that are kept, and in two stages, to the bit.
        for plan in "--stages 1" "--stages 2 --replicas 1,1 --ranks-in-process 2"; do
            TASUKI_CACHE_DIR=$PWD/cache TASUKI_CUDA_CUDNN=$words \
                on_fake "$TASUKI" train $net -q $plan --precision $precision --log two
            [ "$(losses one)" = "$(losses two)" ]
            [ "$(tested one)" = "$(tested two)" ]
        done
        [ $(($(plans 0) + $(plans 2))) -eq $((2 * norms + 2 * pools)) ]
    done
    # Several groups of samples are ours.
    rm -rf cache
    TASUKI_CACHE_DIR=$PWD/cache TASUKI_CUDA_CUDNN=norm \
        on_fake "$TASUKI" train ${net/samples 8/samples 4} -q --stages 1 --precision $precision --log groups
    [ $(plans 0) -eq 0 ]
    [ $(plans 1) -eq 0 ]
    # Costs are told apart, by the name of the device.
    for words in norm pool norm,pool ""; do
        TASUKI_CACHE_DIR=$PWD/costs TASUKI_CUDA_CUDNN=$words on_fake "$TASUKI" profile images.onnx \
            --data $srcdir/etc/demo/digits-train.safetensors --batchnorm-samples 8 --batch-size 8 \
            --loss cross-entropy:y,label --threads 1 --device cuda --precision $precision -q -o costs.json
        grep -o '"device": *"[^"]*"' costs.json
    done >devices
    cat devices
    [ "$(sort -u devices | wc -l)" -eq 4 ]
    [ "$(grep -c 'norm and pool by cuDNN"' devices)" -eq 1 ]
    [ "$(find costs -name "cuda-$precision-*.json" | wc -l)" -eq 4 ]
    for words in norm,pools norm, ,norm; do
        TASUKI_CUDA_CUDNN=$words run on_fake "$TASUKI" train $net
        echo "$output"
        [ "$status" -eq 2 ]
        [[ "$output" == *"TASUKI_CUDA_CUDNN=$words: expected norm, pool or both"* ]]
    done
}

@test "every operator in 16 bits is near the reference, cuDNN's attention among them" {
    local way precision words
    drawn 1 bf16 fp16 "bf16 norm,pool" "fp16 norm,pool"
    for way in "${drawn[@]}"; do
        echo "$way"
        read -r precision words <<<"$way"
        # So few bytes that gradients of attentions take turns.
        TASUKI_TEST_BACKEND=cuda-$precision TASUKI_CUDA_CUDNN=$words TASUKI_CUDA_SCORES=2000 \
            on_fake "$builddir/tests/unit/test_ops"
    done
}

@test "float16: constants that it does not have are taken as they are" {
    "$builddir/tests/make_onnx" net.onnx <<'TEXT'
input image float batch,1,8,8
node Flatten image -> x
init a float 64,16
node MatMul x,a -> b
const mask float 1,16 = -1e9,-1e9,-1e9,-1e9,-1e9,-1e9,-1e9,-1e9,-1e9,-1e9,-1e9,-1e9,-1e9,-1e9,-1e9,-1e9
node Add b,mask -> hidden
node Softmax hidden -> even
const small float . = 1e-6
node Mul b,small -> c
const large float . = 1e6
node Mul c,large -> b2
node Add b2,even -> d
init e float 16,10
node MatMul d,e -> y
output y
TEXT
    local net="net.onnx --data $srcdir/etc/demo/digits-train.safetensors --threads 1 -q"
    "$TASUKI" profile $net --batch-size 16 -o cost.json
    net="$net --cost cost.json --global-batch 16 --steps 3 --lr 0.03 --stages 1 --micro-batches 1"
    "$TASUKI" train $net --log cpu
    on_fake "$TASUKI" train $net --device cuda --precision fp16 --log fp16
    near_curve fp16 cpu
}

# Numbers of large weights the first rank alone sees before it starts; a mask has -1e9.
@test "float16: large constants that are frozen have messages of one size on both sides" {
    local at i
    for at in 1 5000; do
        { head -c $((4 * at)) /dev/zero; for ((i = at; i < 5120; i++)); do printf '\x28\x6b\x6e\xce'; done; } >mask
        "$builddir/tests/make_onnx" net.onnx <<TEXT
input image float batch,1,8,8
node Flatten image -> x
init a float 64,5120
node MatMul x,a -> b
external mask float 1,5120 mask 0 20480
node Add b,mask -> hidden
const small float . = 1e-9
node Mul hidden,small -> c
node Softmax $([ $at -eq 1 ] && echo c || echo hidden) -> even
init e float 5120,10
node MatMul even,e -> y
output y
TEXT
        model="net.onnx --data $srcdir/etc/demo/digits-train.safetensors --threads 1 -q --freeze mask"
        "$TASUKI" profile $model --batch-size 8 -o cost.json
        model="$model --cost cost.json --global-batch 16 --steps 3 --lr 0.03 --micro-batches 2"
        "$TASUKI" train $model --stages 1 --log cpu
        model="$model --device cuda --precision fp16"
        on_fake "$TASUKI" train $model --stages 1 --log one
        on_fake "$TASUKI" train $model --stages 2 --replicas 1,1 --ranks-in-process 2 --log two
        near_curve one cpu
        [ "$(losses one)" = "$(losses two)" ]
    done
}

@test "a plan and a checkpoint of 16 bits are gone on with so, and otherwise where that is said" {
    local data=$srcdir/tests/data/model/mlp net
    take_small mlp
    net="--data $data/train.safetensors --cost mlp.json --threads 1 -q --lr 0.03"
    on_fake "$TASUKI" plan "$data/model.onnx" --cost mlp.json --data "$data/train.safetensors" --global-batch 8 -q \
        --optimizer sgd --cluster flat:1,bandwidth=1e9,memory=1e9 --device cuda --precision fp16 \
        --threads 1 -o plan.json
    grep -q '"precision": "fp16"' plan.json
    on_fake "$TASUKI" train plan.json $net --device cuda --steps 2 --checkpoint run --log log
    on_fake "$TASUKI" train "$data/model.onnx" $net --device cuda --steps 4 --checkpoint run --resume \
        --log log --stages 1
    [ "$(grep -c '"device":"Fake GPU.*, FP16"' log)" -eq 2 ]
    [ "$(grep -c '"loss_scale":65536,"skipped":false}' log)" -eq 4 ]
    run "$TASUKI" train "$data/model.onnx" $net --device cpu --steps 6 --checkpoint run --resume
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"made with --precision fp16, which needs --device cuda: --precision float32 does without" ]]
    "$TASUKI" train "$data/model.onnx" $net --device cpu --steps 6 --checkpoint run --resume \
        --precision float32 --log log --stages 1
    [ "$(grep -c '^{"step":' log)" -eq 6 ]
}

# The second GPU of the machine is the older one.
@test "without bfloat16 on one GPU a run is in float16 on all, its loss scaled, and says so once" {
    local data=$srcdir/tests/data/model/mlp net lacks
    net="--data $data/train.safetensors --cost mlp.json --threads 1 --lr 0.03 --device cuda"
    lacks="sm_70, which has no bfloat16: computed is in float16, with loss scaling"
    take_small mlp
    printf 'gpu 0000:1b:00.0\ncompute 9.0\ngpu 0000:3d:00.0\ncompute 7.0\n' >machine
    run on_fake "$TASUKI" train "$data/model.onnx" $net --global-batch 8 --steps 2 --precision bf16 \
        --ranks-in-process 2 --stages 1 --replicas 2 --micro-batches 1 --checkpoint run --log log
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c "the GPU of rank 1 ([^)]*) is $lacks" <<<"$output")" -eq 1 ]
    grep -q '"backend":"cuda-fp16","device":"Fake GPU, sm_90, CUDA [0-9.]*, FP16"' log
    [ "$(grep -c '"loss_scale":65536,"skipped":false}' log)" -eq 2 ]
    grep -q '"precision": "fp16"' run/step-00000002/state.json
    # What is gone on with is in what it is by then, on whatever GPU.
    echo "gpu 0000:1b:00.0" >machine
    on_fake "$TASUKI" train "$data/model.onnx" $net -q --steps 3 --checkpoint run --resume --stages 1 \
        --log log
    [ "$(grep -c '"loss_scale":65536,"skipped":false}' log)" -eq 3 ]
}

@test "a plan, and a checkpoint, in bfloat16 are in float16 where there is none; TF32 is float32 there" {
    local data=$srcdir/tests/data/model/mlp net lacks plan
    net="--data $data/train.safetensors --cost mlp.json --threads 1 --lr 0.03 --device cuda"
    lacks="sm_70, which has no bfloat16: computed is in float16, with loss scaling"
    plan="$data/model.onnx --data $data/train.safetensors --global-batch 8 --optimizer sgd
        --cluster flat:1,bandwidth=1e9,memory=1e9 --device cuda --threads 1 --cost mlp.json"
    take_small mlp
    on_fake "$TASUKI" plan $plan --precision bf16 -q -o plan.json
    grep -q '"precision": "bf16"' plan.json
    on_fake "$TASUKI" train plan.json $net -q --steps 1 --checkpoint run
    grep -q '"precision": "bf16"' run/step-00000001/state.json
    printf 'gpu 0000:1b:00.0\ncompute 7.0\n' >machine
    run on_fake "$TASUKI" train plan.json $net --steps 2 --checkpoint run --resume --log log
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c "$lacks" <<<"$output")" -eq 1 ]
    [ "$(grep -c '"loss_scale":65536,"skipped":false}' log)" -eq 1 ]
    grep -q '"precision": "fp16"' run/step-00000002/state.json
    run on_fake "$TASUKI" plan $plan --precision bf16 -o old.json
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"the GPU is $lacks"* ]]
    grep -q '"precision": "fp16"' old.json
    run on_fake "$TASUKI" train "$data/model.onnx" $net --global-batch 8 --steps 1 --stages 1 \
        --precision tf32 --log tf32
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"sm_70, which has no TF32: computed is in float32"* ]]
    grep -q '"backend":"cuda","device":"Fake GPU, sm_70, CUDA [0-9.]*"' tf32
    # Asked for by itself nothing stands in for it.
    TASUKI_TEST_BACKEND=cuda-bf16 run on_fake "$builddir/tests/unit/test_update"
    [ "$status" -ne 0 ]
}

# Of each step: the loss, what it was scaled by, and whether it was skipped.
scales() {
    sed -nE 's/^\{"step":.*"loss":([^,]*),.*"loss_scale":([^,]*),"skipped":(.*)\}$/\1 \2 \3/p' "$1"
}

# All samples are in each step, so that after those that were skipped the run is as from the start.
@test "float16: steps whose gradients overflow are skipped on all ranks, and not counted" {
    local data=$srcdir/tests/data/model/transformer skipped plan
    local net="$data/model.onnx --data $data/train.safetensors --optimizer adam --threads 1 -q"
    "$TASUKI" profile $net --batch-size 18,36 -o cost.json
    net="$net --cost cost.json --device cuda --precision fp16 --global-batch 72 --no-shuffle"
    net="$net --lr 0.01 --ema 0.5 --deterministic"
    drawn 1 "--stages 1 --micro-batches 2" "--stages 1 --replicas 2 --zero --clip-norm 1" \
        "--schedule zb-h1 --stages 2 --replicas 1,1 --micro-batches 4"
    for plan in "${drawn[@]}"; do
        echo "$plan"
        on_fake "$TASUKI" train $net $plan --ranks-in-process 2 --loss-scale 67108864 --steps 7 \
            --log all
        scales all
        skipped=$(scales all | awk '$3 == "false" { exit } { n++ } END { print n }')
        [ "$skipped" -gt 2 ]
        [ "$(scales all | head -n "$skipped" | cut -d' ' -f1 | sort -u | wc -l)" -eq 1 ]
        [ "$(grep -c '"bad_step"' all)" -eq 0 ]
        on_fake "$TASUKI" train $net $plan --ranks-in-process 2 --log some \
            --loss-scale $((67108864 >> skipped)) --steps $((7 - skipped))
        [ "$(scales all | tail -n +$((skipped + 1)))" = "$(scales some)" ]
        mv all last
        rm some
    done
    # Where it was stopped among them it goes on as it would have.
    for steps in 2 "7 --resume"; do
        on_fake "$TASUKI" train $net $plan --ranks-in-process 2 --loss-scale 67108864 \
            --steps $steps --checkpoint saved --log resumed
    done
    [ "$(scales last)" = "$(scales resumed)" ]
    grep -q "\"skipped_steps\": $(scales last | grep -c ' true$')$" saved/step-00000007/state.json
}
