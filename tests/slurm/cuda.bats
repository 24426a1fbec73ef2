# SPDX-License-Identifier: MIT
# Training by tasuki-cuda.so, over stand-ins of the CUDA runtime that run its kernels on the host.

load common

setup() {
    use_stand_in
    printf 'gpu 0000:1b:00.0\ngpu 0000:3d:00.0\n' >machine
    model="$srcdir/etc/demo/digits.onnx --data $srcdir/etc/demo/digits-train.safetensors"
    model="$model --batchnorm-samples 4"
    # What a kernel takes on the stand-in says nothing, and takes long.
    [ -e ../cost.json ] || "$TASUKI" profile $model --optimizer momentum --batch-size 4,16 \
        --threads 1 -q -o ../cost.json
    model="$model --cost ../cost.json --global-batch 16"
    model="$model --steps 3 --lr 0.03 --optimizer momentum --threads 1 -q"
}

# A network that is small, with costs that were not measured on the stand-in.
take_small() {
    local data=$srcdir/tests/data/model/$1
    model="$data/model.onnx --data $data/train.safetensors --optimizer sgd --threads 1"
    [ -e "$1.json" ] || "$TASUKI" profile $model --batch-size 2,8 -q -o "$1.json"
    model="$model --cost $1.json --global-batch 8 --steps 3 --lr 0.03 -q"
}

# drawn N CASE...: $drawn has N of them; all where TASUKI_TEST_LONG is set.
drawn() {
    local n=$1
    shift
    [ -z "${TASUKI_TEST_LONG-}" ] || n=$#
    mapfile -t drawn < <(shuf -n "$n" -e -- "$@")
}

needs_mpi() {
    local reason
    reason=$(no_mpi)
    [ -z "$reason" ] || skip "$reason"
    mpi_environment
    export TASUKI_MEASURE=none
}

on_fake() {
    LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" "$@"
}

losses() {
    sed -nE 's/^\{"step":.*"loss":([^,]*),.*/\1/p' "$1"
}

# Float32 in another order: what a few steps may differ by.
same_curve() {
    paste <(losses "$1") <(losses "$2") | awk '
        function abs(x) { return x < 0 ? -x : x }
        abs($1 - $2) > 1e-5 * abs($2) { print; bad = 1 }
        END { exit bad || NR != 3 }'
}

@test "the module is listed, and its GPU" {
    run on_fake "$TASUKI" info
    echo "$output"
    [[ "$output" == *tasuki-cuda.so* ]]
    [[ "$output" == *"Fake GPU, sm_90"* ]]
}

@test "a run that is not told what computes takes the GPU that is there" {
    echo "gpu 0000:1b:00.0" >machine
    take_small mlp
    export TASUKI_NVML=$builddir/tests/.libs/fake_nvml.so
    on_fake "$TASUKI" train $model --stages 1 --micro-batches 1 --log default
    grep -q '"backend":"cuda"' default
    on_fake "$TASUKI" train $model --stages 1 --micro-batches 1 --device cpu --log cpu
    grep -q '"backend":"cpu"' cpu
    same_curve default cpu
    on_fake "$TASUKI" train $model --stages 1 --micro-batches 1 --precision tf32 --log tf32
    grep -q '"device":"Fake GPU, sm_90, CUDA [0-9.]*, TF32"' tf32
    run on_fake "$TASUKI" train $model --device cpu --precision tf32
    [ "$status" -eq 2 ]
    [[ "$output" == *"--precision tf32 needs --device cuda"* ]]
}

@test "one process has a rank for each GPU by --ranks-in-process auto" {
    export TASUKI_NVML=$builddir/tests/.libs/fake_nvml.so
    take_small mlp
    "$TASUKI" train $model --device cpu --stages 1 --micro-batches 1 --log cpu
    model="$model --ranks-in-process auto --micro-batches 2"
    on_fake "$TASUKI" train $model --device cuda --stages 2 --replicas 1,1 --log given
    on_fake "$TASUKI" train $model --stages 1 --replicas 2 --log default
    grep -q '"ranks":2.*"backend":"cuda"' given
    grep -q '"ranks":2.*"backend":"cuda"' default
    same_curve given cpu
    same_curve default cpu
    # What CUDA shows counts, also where no driver is asked; kernels of CPUs run in one rank.
    CUDA_VISIBLE_DEVICES=1 on_fake "$TASUKI" train $model --device cuda --stages 1 --log shown
    on_fake "$TASUKI" train $model --device cpu --stages 1 --log none
    grep -q '"ranks":1.*"backend":"cuda"' shown
    grep -q '"ranks":1.*"backend":"cpu"' none
    TASUKI_NVML=/nonexistent on_fake "$TASUKI" train $model --device cuda --stages 2 --log blind
    grep -q '"ranks":2.*"backend":"cuda"' blind
    echo "gpu 0000:1b:00.0" >machine
    on_fake "$TASUKI" train $model --device cuda --stages 1 --log one
    grep -q '"ranks":1.*"backend":"cuda"' one
    : >machine
    run on_fake "$TASUKI" train $model --device cuda --stages 1
    [ "$status" -eq 1 ]
    [[ "$output" == *"--device cuda: no GPU can be used"* ]]
}

# cost LOG GPUS SECONDS: hours are of what the phases took (the end is not over yet), and no more than
# of what all took.
cost() {
    tail -n 1 "$1" | sed -nE 's/.*"phases":\{([^}]*)\}.*"usage":\{([^}]*)\}.*/\1,\2/p' | tr ',:' '\n ' |
        awk -v gpus="$2" -v most="$3" '
            { print; at[substr($1, 2, length($1) - 2)] = $2 }
            function near(x, y) { return x > y - 1e-9 && x < y + 1e-9 }
            END {
                least = at["launch"] + at["discover"] + at["open"] + at["plan"]
                least += at["compile"] + at["steps"]
                took = 3600 * at["node_hours"]
                exit !(at["gpus"] == gpus && near(at["gpu_hours"], gpus * at["node_hours"]) &&
                       least > 0 && took >= 0.99 * least && took <= most &&
                       near(at["gpu_kwh"], 0.002 * gpus) && near(at["kwh"], at["gpu_kwh"]))
            }'
}

# NVML counts 7.2 MJ between two questions.
@test "the end of a run has the hours of its GPUs, and what these used, each once" {
    local gpus begin
    take_small mlp
    export TASUKI_NVML=$builddir/tests/.libs/fake_nvml.so TASUKI_SYSFS=$PWD/nothing
    printf 'gpu 0000:1b:00.0\nenergy 7200000\n' >machine
    begin=$SECONDS
    run on_fake "$TASUKI" train ${model% -q} --device cuda --stages 1 --log log
    echo "$output"
    [[ "${lines[-1]}" == *" GPU-hours, 0.002 kWh (processors not collected, GPUs 0.002)" ]]
    cost log 1 $((SECONDS - begin + 1))
    if command -v python3; then
        python3 "$srcdir/tests/cli/log-lines.py" "$srcdir/man" log >unseen
        ! grep tensor_cores unseen || false
    fi
    needs_mpi
    for gpus in 1 2; do
        [ $gpus -eq 1 ] || printf 'gpu 0000:3d:00.0\nenergy 7200000\n' >>machine
        begin=$SECONDS
        mpirun -n 2 -x LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" "$TASUKI" train $model \
            --device cuda --stages 1 --replicas 2 --log log
        cost log $gpus $((SECONDS - begin + 1))
    done
}

@test "of several tasks each is a rank, and GPUs that --ranks-in-process auto would have used are missed" {
    needs_mpi
    export TASUKI_NVML=$builddir/tests/.libs/fake_nvml.so
    printf 'gpu 0000:%s:00.0\n' 1b 3d 5f >machine
    run mpirun -n 2 -x LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" "$TASUKI" train $model
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"2 tasks, 3 GPUs: 1 would idle; use mpirun -n 3 tasuki ..., or --device cpu, or \
--ranks-in-process auto"* ]]
}

@test "several tasks share the GPUs of their node by --ranks-in-process auto" {
    local fake=$builddir/tests/.libs/fake_cuda.so
    needs_mpi
    export TASUKI_NVML=$builddir/tests/.libs/fake_nvml.so
    take_small mlp
    "$TASUKI" train $model --device cpu --stages 1 --micro-batches 1 --log cpu
    model="$model --ranks-in-process auto --micro-batches 2"
    printf 'gpu 0000:%s:00.0\n' 1b 3d 5f >machine
    mpirun -n 2 -x LD_PRELOAD="$fake" "$TASUKI" train $model --stages 3 --replicas 1,1,1 --log three
    grep -q '"ranks":3.*"backend":"cuda"' three
    same_curve three cpu
    printf 'gpu 0000:%s:00.0\n' 1b 3d 5f 6f >machine
    mpirun -n 2 -x LD_PRELOAD="$fake" "$TASUKI" train $model --stages 2 --replicas 2,2 --log four
    grep -q '"ranks":4.*"backend":"cuda"' four
    same_curve four cpu
    # Each is shown its own.
    model="$model --stages 1 --replicas 4 --log own"
    mpirun -n 1 -x LD_PRELOAD="$fake" -x CUDA_VISIBLE_DEVICES=0 "$TASUKI" train $model : \
        -n 1 -x LD_PRELOAD="$fake" -x CUDA_VISIBLE_DEVICES=1,2,3 "$TASUKI" train $model
    grep -q '"ranks":4.*"backend":"cuda"' own
    same_curve own cpu
}

# Numbers of 8 bits, or of 11: a loss of some steps.
near_curve() {
    paste <(losses "$1") <(losses "$2") | awk -v bound="$([ "$1" = bf16 ] && echo 1e-2 || echo 1.25e-3)" '
        function abs(x) { return x < 0 ? -x : x }
        abs($1 - $2) > bound * abs($2) { print; bad = 1 }
        END { exit bad || NR != 3 }'
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

# 'model': what trains net.onnx, of digits, and cost.json is what that takes here.
take_net() {
    model="net.onnx --data $srcdir/etc/demo/digits-train.safetensors --loss cross-entropy:y,label"
    model="$model --threads 1 -q"
    "$TASUKI" profile $model --batch-size 4,8 -o cost.json
    model="$model --global-batch 8 --steps 3 --lr 0.03 --stages 1"
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

# The stand-in has no groups of three axes in 16 bits: that convolution stays float32, on the GPU. With
# channels that are last are those of "last" alone, but for the first.
@test "16 bits: convolutions, pools and a BatchNorm between them are near float32's" {
    local data=$srcdir/tests/data/model/cnn precision name
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
    "$builddir/tests/make_onnx" last.onnx <<'TEXT'
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
            # A BatchNorm that does the Relu behind it gives the bits of both, one by one.
            TASUKI_CUDA_CHAINS=0 on_fake "$TASUKI" train $model --precision $precision \
                --micro-batches 1 --log apart.jsonl --checkpoint apart
            on_fake "$TASUKI" train $model --precision $precision --micro-batches 1 --log joined.jsonl \
                --checkpoint joined
            [ "$(losses apart.jsonl)" = "$(losses joined.jsonl)" ]
            cmp apart/step-*/shard-0000.safetensors joined/step-*/shard-0000.safetensors
            rm -r apart joined apart.jsonl joined.jsonl
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
}

@test "every operator in 16 bits is near the reference, cuDNN's attention among them" {
    local precision
    drawn 1 bf16 fp16
    for precision in "${drawn[@]}"; do
        echo "$precision"
        # So few bytes that gradients of attentions take turns.
        TASUKI_TEST_BACKEND=cuda-$precision TASUKI_CUDA_SCORES=2000 \
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

@test "a GPU for which the module has no code is one error, with both architectures" {
    printf 'gpu 0000:1b:00.0\ncompute 6.1\ncode 9\n' >machine
    take_small mlp
    run on_fake "$TASUKI" train $model --device cuda --stages 1
    echo "$output"
    [ "$status" -eq 1 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == *"GPU 0000:1b:00.0: Fake GPU, sm_61, CUDA "*": this tasuki-cuda.so has code for "*"sm_"*"no kernel image"*"--with-nvcc-gencode"* ]]
    # All that nvcc was told, and nothing else.
    local told
    told=$(sed -n 's/^NVCC_GENCODE = //p' "$builddir/Makefile" | grep -oE 'arch=(compute|sm)_[0-9]+' |
        sed 's/.*_/sm_/' | sort -u | paste -sd' ')
    [[ "$output" == *"has code for $told ("* ]]
    printf 'gpu 0000:1b:00.0\ncompute 9.0\ncode 9\n' >machine
    on_fake "$TASUKI" train $model --device cuda --stages 1
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

@test "what a step takes on a GPU is shown by operator" {
    local mlp=$srcdir/tests/data/model/mlp
    TASUKI_FAKE_WATCH=1 on_fake "$TASUKI" profile "$mlp/model.onnx" --data \
        "$mlp/train.safetensors" --loss cross-entropy:logits,label --batch-size 4 --device cuda \
        --no-cache --threads 1 --format text >table
    grep -q '^device    Fake GPU' table
    grep -q '^LinearWgrad ' table
}

@test "without a GPU, --device cuda is one clear error" {
    : >machine
    run on_fake "$TASUKI" train $model --device cuda
    echo "$output"
    [ "$status" -eq 1 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == *"--device cuda: no GPU can be used"*"no CUDA-capable device"* ]]
}

@test "on a machine without a driver the module is listed, and --device cuda is one clear error" {
    # Nothing stands in for CUDA; a GPU that is there is hidden.
    export CUDA_VISIBLE_DEVICES=
    unset TASUKI_FAKE_STRICT TASUKI_FAKE_NVML
    run "$TASUKI" info
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *tasuki-cuda.so* ]]
    [[ "$output" != *", sm_"* ]]
    run "$TASUKI" train $model --device cuda
    echo "$output"
    [ "$status" -eq 1 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == *"--device cuda: no GPU can be used: cudaGetDeviceCount: "* ]]
}

@test "a header of kernels that changes has all files made again that include it" {
    local file names header
    command -v make >/dev/null || skip "no make"
    names=$(sed -n 's/^\t\(kernels\/cuda\/[a-z]*\)\.cu\( .*\)*$/\1/p' "$srcdir/kernels/Makemodule.am")
    [ -n "$names" ]
    header=$(grep -o '[^ ]*kernels/cuda/device\.cuh' "$builddir/kernels/cuda/.deps/optimize.Pcu")
    run env -u MAKEFLAGS -u MAKELEVEL make -s -C "$builddir" -n V=1 -W "${header%%$'\n'*}" tasuki-cuda.la
    [ "$status" -eq 0 ]
    for file in $names; do
        echo "$file"
        [[ "$output" == *"$file.cu"* ]]
    done
}

@test "what a GPU does not do is refused by name" {
    run "$TASUKI" train $model --device cuda --backend reference
    [ "$status" -eq 2 ]
    [[ "$output" == *"--device cuda and --backend reference"* ]]
    run "$TASUKI" train $model --device cuda --precision float64
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"--device cuda computes in float32"* ]]
}

@test "every operator gives on the GPU what the reference gives, whenever the GPU does it" {
    for seed in $RANDOM ${TASUKI_TEST_LONG:+1 2 3}; do
        echo "seed $seed"
        # So few bytes that some attentions are done in several turns.
        TASUKI_FAKE_SEED=$seed TASUKI_TEST_BACKEND=cuda TASUKI_CUDA_SCORES=2000 \
            run on_fake "$builddir/tests/unit/test_ops"
        echo "$output" | tail -n 20
        [ "$status" -eq 0 ]
    done
}

@test "products of all forms, and optimizers, give on the GPU what the reference gives" {
    for program in test_cuda_product test_update test_chain; do
        TASUKI_FAKE_SEED=$RANDOM TASUKI_TEST_BACKEND=cuda run on_fake "$builddir/tests/unit/$program"
        echo "$output"
        [ "$status" -eq 0 ]
        [[ "$output" != *SKIPPED* ]]
    done
}

@test "an activation is part of a product where a small one shows that it is the same" {
    local network words
    for network in transformer causal mlp; do
        take_small $network
        model="${model/ -q/} --stages 1 --micro-batches 2"
        "$TASUKI" train $model --log cpu -q
        for words in "" erf rough drops-nan no-activations; do
            TASUKI_FAKE_CUBLASLT=$words run on_fake "$TASUKI" train $model --device cuda --log "$network-$words" -v
            echo "$output"
            [ "$status" -eq 0 ]
            same_curve "$network-$words" cpu
            case $network-$words in
            transformer-erf) [[ "$output" == *"GELU+AUX+BIAS float32 "*e-0?" (erf) 0.00047 (tanh)"* ]] ;;
            causal-) [[ "$output" == *"GELU+AUX+BIAS float32 0.00047 (erf) "*e-0?" (tanh)"* ]] ;;
            causal-rough) [[ "$output" =~ GELU\+AUX\+BIAS\ float32\ 0.0[12][0-9]*\ \(erf\)\ 0.0[12] ]] ;;
            mlp-) [[ "$output" == *"RELU+BIAS float32 0"* ]] ;;
            mlp-drops-nan) [[ "$output" == *"RELU+BIAS float32 inf"* ]] ;;
            mlp-no-activations) [[ "$output" == *"RELU+BIAS float32 none"* ]] ;;
            esac
        done
        rm cpu
    done
}

@test "the gradient of a bias is part of the product that makes that of the weights" {
    local network precision
    for network in transformer causal mlp tied; do
        take_small $network
        model="${model/ -q/} --stages 1 --micro-batches 4 --device cuda"
        # Of float32 it is not, and not where a small product is wrong.
        run on_fake "$TASUKI" train $model --log apart -v
        [ "$status" -eq 0 ]
        [[ "$output" != *"of biases by products"* ]]
        rm apart
        TASUKI_FAKE_CUBLASLT=few-sums run on_fake "$TASUKI" train $model --precision bf16 --log apart -v
        [ "$status" -eq 0 ]
        [[ "$output" == *"sums of"*" bfloat16"* ]]
        [[ "$output" != *"of biases by products"* ]]
        rm apart
        for precision in bf16 fp16; do
            TASUKI_FAKE_CUBLASLT=no-sums run on_fake "$TASUKI" train $model --precision $precision --log apart -v
            [ "$status" -eq 0 ]
            [[ "$output" != *"of biases by products"* ]]
            run on_fake "$TASUKI" train $model --precision $precision --log joined -v
            echo "$output"
            [ "$status" -eq 0 ]
            [[ "$output" =~ cuda:\ [1-9][0-9]*\ gradients?\ of\ biases\ by\ products ]]
            same_curve joined apart
            rm apart joined
        done
    done
}

@test "a network trained on a GPU has the curve of the CPU" {
    "$TASUKI" train $model --log cpu.jsonl --stages 1 --micro-batches 2
    TASUKI_FAKE_SEED=$RANDOM on_fake "$TASUKI" train $model --device cuda --log cuda.jsonl \
        --stages 1 --micro-batches 2
    same_curve cuda.jsonl cpu.jsonl
}

@test "kernels are recorded as graphs once for each slot, and the numbers are those without" {
    run on_fake "$TASUKI" train ${model/ -q/} -v --device cuda --log graphs.jsonl --stages 1 \
        --micro-batches 4
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" =~ cuda:\ ([0-9]+)\ graphs,\ launched\ ([0-9]+)\ times ]]
    [ "${BASH_REMATCH[1]}" -gt 0 ]
    [ "${BASH_REMATCH[2]}" -gt $((2 * ${BASH_REMATCH[1]})) ]
    run on_fake "$TASUKI" train ${model/ -q/} -v --device cuda --log plain.jsonl --stages 1 \
        --micro-batches 4 --no-cuda-graphs
    [ "$status" -eq 0 ]
    [[ "$output" != *" graphs, "* ]]
    [ "$(losses graphs.jsonl)" = "$(losses plain.jsonl)" ]
}

@test "pointwise operators in a chain give the same bits, are compiled once, and are not needed" {
    export TASUKI_CACHE_DIR=$PWD/cache
    take_small grouped
    model="${model/ -q/} --device cuda --stages 1 --micro-batches 2 -v"
    for precision in float32 bf16 fp16; do
        TASUKI_CUDA_CHAINS=0 on_fake "$TASUKI" train $model --precision $precision --log one.jsonl \
            --checkpoint one --no-cache
        run on_fake "$TASUKI" train $model --precision $precision --log chains.jsonl --checkpoint chains
        echo "$output"
        [[ "$output" =~ cuda:\ [1-9][0-9]*\ kernels?\ of\ chains ]]
        [ "$(losses one.jsonl)" = "$(losses chains.jsonl)" ]
        cmp one/step-*/shard-0000.safetensors chains/step-*/shard-0000.safetensors
        rm -r one chains
    done
    # Those of the cache are taken, though nothing can be compiled; damaged ones are not.
    printf 'gpu 0000:1b:00.0\nerror nvrtcCompileProgram 6 0\n' >machine
    run on_fake "$TASUKI" train $model --log again.jsonl
    [[ "$output" == *" of chains"* ]]
    for file in cache/chain-*.cubin; do
        # One bit of the last word.
        python3 -c 'import sys
file = open(sys.argv[1], "r+b")
file.seek(-4, 2)
byte = file.read(1)[0]
file.seek(-4, 2)
file.write(bytes([byte ^ 8]))' "$file"
        cp "$file" "${file#cache/}.damaged"
    done
    rm again.jsonl
    run on_fake "$TASUKI" train $model --log again.jsonl
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"pointwise operators run one by one: GPU 0000:1b:00.0: NVRTC: NVRTC_ERROR_COMPILATION"* ]]
    [[ "$output" != *" of chains"* ]]
    # And made anew where they can be; with --no-cache nothing is kept.
    echo "gpu 0000:1b:00.0" >machine
    rm again.jsonl
    on_fake "$TASUKI" train $model --log again.jsonl
    mended=0
    for file in cache/chain-*.cubin; do
        cmp -s "$file" "${file#cache/}.damaged" || mended=$((mended + 1))
    done
    [ "$mended" -gt 0 ]
    rm -r cache
    rm again.jsonl
    on_fake "$TASUKI" train $model --log again.jsonl --no-cache
    [ ! -e cache ]
}

@test "what cuDNN has chosen is kept for later runs, and damaged texts are not" {
    local plan plans
    export TASUKI_CACHE_DIR=$PWD/cache
    model="$srcdir/etc/demo/digits.onnx --data $srcdir/etc/demo/digits-train.safetensors"
    model="$model --batchnorm-samples 4 --cost ../cost.json --global-batch 4 --steps 2 --threads 1"
    model="$model --device cuda --stages 1 --micro-batches 1 --precision bf16 -q"
    on_fake "$TASUKI" train $model --log first
    plans=$(ls cache/cudnn-*.plan | wc -l)
    [ "$plans" -ge 2 ]
    # Another GPU has its own.
    printf 'gpu 0000:1b:00.0\ncompute 8.0\n' >machine
    on_fake "$TASUKI" train $model --log other
    [ "$(ls cache/cudnn-*.plan | wc -l)" -eq $((2 * plans)) ]
    # Nothing can be chosen any more.
    printf 'gpu 0000:1b:00.0\nerror heuristics 3000\n' >machine
    run on_fake "$TASUKI" train $model --log again
    [ "$status" -eq 0 ]
    [ "$(losses first)" = "$(losses again)" ]
    on_fake "$TASUKI" train $model --log without --no-cache
    [ "$(losses first)" != "$(losses without)" ]
    # A site's, which is only read.
    mv cache site
    TASUKI_SITE_CACHE=$PWD/site on_fake "$TASUKI" train $model --log site.jsonl
    [ "$(losses first)" = "$(losses site.jsonl)" ]
    rm -rf cache
    mv site cache
    # What is not as it was written is not taken; it is made anew where that can be.
    for plan in cache/cudnn-*.plan; do
        tr 1 2 <"$plan" >changed
        mv changed "$plan"
    done
    on_fake "$TASUKI" train $model --log damaged
    [ "$(losses without)" = "$(losses damaged)" ]
    echo "gpu 0000:1b:00.0" >machine
    on_fake "$TASUKI" train $model --log mended
    [ "$(losses first)" = "$(losses mended)" ]
    printf 'gpu 0000:1b:00.0\nerror heuristics 3000\n' >machine
    on_fake "$TASUKI" train $model --log after
    [ "$(losses first)" = "$(losses after)" ]
    [ "$(ls cache/cudnn-*.plan | wc -l)" -eq $((2 * plans)) ]
}

@test "a trace has what the GPU ran beside what the host handed over" {
    command -v python3 >/dev/null || skip "no python3"
    take_small transformer
    model="$model --device cuda --micro-batches 4"
    TASUKI_FAKE_SEED=$RANDOM on_fake "$TASUKI" train $model --ranks-in-process 2 --stages 2 \
        --replicas 1,1 --trace two.json
    on_fake "$TASUKI" train $model --ranks-in-process 2 --schedule interleaved --stages 4 \
        --replicas 1,1,1,1 --recompute full --trace four.json
    TASUKI_FAKE_WATCH=1 on_fake "$TASUKI" train $model --stages 1 --trace one.json \
        --eval-every 1 --test "$srcdir/tests/data/model/transformer/train.safetensors"
    python3 "$srcdir/tests/slurm/cuda-trace.py" two.json four.json one.json
    # Nothing is timed, nor are there rows, where nobody asks; and what fails is told.
    printf 'gpu 0000:1b:00.0\nerror cudaEventElapsedTime 7\n' >machine
    on_fake "$TASUKI" train $model --stages 1
    run on_fake "$TASUKI" train $model --stages 1 --trace failed.json
    [ "$status" -eq 1 ]
    [[ "$output" == *"GPU 0000:1b:00.0: cudaEventElapsedTime: error 7"* ]]
    "$TASUKI" train ${model/--device cuda/} --stages 1 --trace cpu.json
    ! grep -q GPU cpu.json || false
}

@test "a profiler sees a range for each instruction of each step" {
    local micro kind
    grep -q InitializeInjectionNvtx2 "$builddir/tests/.libs/fake_nvtx.so" || skip "no NVTX in this toolkit"
    take_small transformer
    model="$model --device cuda --micro-batches 4"
    export NVTX_INJECTION64_PATH=$builddir/tests/.libs/fake_nvtx.so TASUKI_FAKE_NVTX=ranges
    on_fake "$TASUKI" train $model --stages 1
    [ "$(grep -c '^push ' ranges)" -eq "$(grep -c '^pop$' ranges)" ]
    # One ends before the next begins.
    [ -z "$(sed -n '1~2{/^push /!p};2~2{/^pop$/!p}' ranges)" ]
    for micro in 0 1 2 3; do
        [ "$(grep -cx "push F $micro" ranges)" -eq 3 ]
    done
    for kind in BW\ {0..3} REDUCE STEP; do
        [ "$(grep -cx "push $kind" ranges)" -eq 3 ]
    done
    # Of two ranks and three steps every kind that lists have, and nothing else.
    on_fake "$TASUKI" train $model --ranks-in-process 2 --stages 2 --replicas 1,1 --schedule zb-h1
    [ "$(grep -c '^push ' ranges)" -eq "$(grep -c '^pop$' ranges)" ]
    for kind in {F,SEND,RECV}\ {0..3} REDUCE STEP; do
        [ "$(grep -cx "push $kind" ranges)" -eq 6 ]
    done
    for kind in {B,W,BW}\ {0..3}; do
        [ "$(grep -cx "push $kind" ranges)" -eq 3 ]
    done
    [ "$(grep -c '^push ' ranges)" -eq 120 ]
}

@test "what libraries compute on tensor cores is counted" {
    local data=$srcdir/tests/data/model/cnn precision
    model="$data/model.onnx --data $data/train.safetensors --batchnorm-samples 2 --threads 1"
    "$TASUKI" profile $model --batch-size 8 -q -o cnn.json
    model="$model --cost cnn.json --global-batch 8 --steps 1 --stages 1 --micro-batches 1 --device cuda"
    for precision in float32 tf32 bf16 fp16; do
        run on_fake "$TASUKI" train $model -v --precision $precision --log $precision
        echo "$output"
        [ "$status" -eq 0 ]
        [[ "$output" =~ cuda:\ [0-9]+\ of\ [0-9]+\ products\ on\ tensor\ cores ]]
        grep -q '"tensor_cores":{"products":[1-9][0-9]*,"on_them":[0-9]*}' $precision
        if [ $precision = float32 ]; then
            grep -q '"on_them":0}' $precision
        else
            grep -q '"on_them":[1-9][0-9]*}' $precision
        fi
    done
    # What says nothing of itself is not counted on.
    printf 'gpu 0000:1b:00.0\nerror cublasLtMatmulAlgoCapGetAttribute 7\n' >machine
    take_small mlp
    on_fake "$TASUKI" train $model --stages 1 --device cuda --precision bf16 --log silent
    grep -q '"on_them":0}' silent
    "$TASUKI" train $model --stages 1 --device cpu --log cpu
    ! grep -q tensor_cores cpu || false
}

@test "where the GPU of a plan is not what a rank was given, one error has both" {
    take_small mlp
    on_fake "$TASUKI" train $model --device cuda --ranks-in-process 2 --stages 2 --replicas 1,1 \
        --micro-batches 2 --checkpoint run
    python3 -c 'import json
json.dump(json.load(open("run/step-00000003/state.json"))["plan"], open("plan.json", "w"))'
    CUDA_VISIBLE_DEVICES=1 run on_fake "$TASUKI" train plan.json --keep-plan --device cuda --steps 1 \
        --data "$srcdir/tests/data/model/mlp/train.safetensors" --threads 1
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *'0000:1b:00.0" is driven by no rank of this run (1 rank); rank 0 drives '* ]]
    [[ "$output" == *'0000:3d:00.0; it is a plan for 2 ranks' ]]
}

@test "plans over ranks with GPUs have the curve of one CPU" {
    needs_mpi
    export TASUKI_FAKE_WATCH=1
    "$TASUKI" train $model --log cpu.jsonl --stages 1 --micro-batches 1
    drawn 2 "--stages 2 --replicas 1,1 --micro-batches 4" \
        "--stages 1 --replicas 2 --micro-batches 1" \
        "--stages 1 --replicas 2 --micro-batches 2 --zero" \
        "--schedule interleaved --stages 4 --replicas 1,1,1,1 --micro-batches 4"
    for plan in "${drawn[@]}"; do
        echo "$plan"
        rm -f cuda.jsonl
        TASUKI_FAKE_SEED=$RANDOM timeout 300 mpirun -n 2 \
            -x LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" "$TASUKI" train $model \
            --device cuda --log cuda.jsonl $plan
        same_curve cuda.jsonl cpu.jsonl
    done
    # Open MPI is asked; the stand-in says that it is.
    grep -q '"library":"[^"]*, CUDA-aware"' cuda.jsonl
}

# The stand-ins' libraries want next to no scratch.
@test "memory that is planned for a GPU that is not here is that of one that is, but for libraries' scratch" {
    local network precision where
    for network in causal transformer cnn; do
        take_small $network
        [ $network != causal ] || model="$model --loss cross-entropy:y,t"
        [ $network != cnn ] || model="$model --batchnorm-samples 2"
        model="${model/--threads 1/} --cluster flat:2,bandwidth=1e9 --micro-batches 2"
        model="${model/--steps 3 --lr 0.03/} --stages 2 --replicas 1,1 --schedule 1f1b --device cuda"
        for precision in float32 bf16; do
            on_fake "$TASUKI" plan $model --precision $precision -o here.json >/dev/null
            "$TASUKI" plan $model --precision $precision -o elsewhere.json >/dev/null
            python3 - $network <<'END'
import json, sys
here, elsewhere = ([stage["memory"] for stage in json.load(open(f"{where}.json"))["stages"]]
                   for where in ("here", "elsewhere"))
scratch = (256 if sys.argv[1] == "cnn" else 32) << 20
print(here, elsewhere)
assert all(abs(b - a - scratch) <= 16384 for a, b in zip(here, elsewhere))
END
        done
    done
}

@test "a checkpoint of a GPU is gone on with on a CPU" {
    "$TASUKI" train $model --log cpu.jsonl --stages 1 --micro-batches 1
    on_fake "$TASUKI" train ${model/--steps 3/--steps 2} --device cuda --log cuda.jsonl \
        --stages 1 --micro-batches 1 --checkpoint run
    "$TASUKI" train $model --log cuda.jsonl --stages 1 --micro-batches 1 --checkpoint run --resume
    same_curve cuda.jsonl cpu.jsonl
}

@test "what the libraries say that they cannot compute is computed without them" {
    local data
    for network in "mlp cublasLtMatmulAlgoGetHeuristic 7" "cnn cudnnBackendGetAttribute 3000"; do
        set -- $network
        data="$srcdir/tests/data/model/$1"
        model="$data/model.onnx --data $data/train.safetensors --stages 1 --micro-batches 1"
        model="$model --global-batch 8 --batchnorm-samples 2 --steps 3 --lr 0.03 --threads 1 -q"
        "$TASUKI" profile "$data/model.onnx" --data "$data/train.safetensors" --batch-size 8 \
            --batchnorm-samples 2 --threads 1 -q -o cost.json
        model="$model --cost cost.json"
        printf 'gpu 0000:1b:00.0\nerror %s %s\n' "$2" "$3" >machine
        "$TASUKI" train $model --log cpu.jsonl
        on_fake "$TASUKI" train $model --device cuda --log cuda.jsonl
        same_curve cuda.jsonl cpu.jsonl
        rm cuda.jsonl cpu.jsonl
    done
}

@test "a call that fails in the middle of a run ends it, with the GPU and the call" {
    printf 'gpu 0000:1b:00.0\nerror cudaLaunchKernel 700 50\n' >machine
    run on_fake "$TASUKI" train $model --device cuda --stages 1
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"GPU 0000:1b:00.0: kernel "* ]]
}
