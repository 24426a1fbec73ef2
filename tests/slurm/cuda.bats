# SPDX-License-Identifier: MIT
# Training by tasuki-cuda.so, over stand-ins of the CUDA runtime that run its kernels on the host.

load common

setup() {
    local reason=
    [ -e "$builddir/.libs/tasuki-cuda.so" ] || reason="built without CUDA"
    [ -n "$reason" ] || [ -e "$builddir/tests/.libs/fake_cuda.so" ] ||
        reason="fake_cuda.so is not built"
    [ -z "$reason" ] || skip "$reason"
    cd "$BATS_TEST_TMPDIR"
    # Sanitizers want to be the first library.
    export ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0
    export TASUKI_FAKE_STRICT=1 TASUKI_FAKE_NVML=$PWD/machine TASUKI_PKGLIBDIR=$builddir/.libs
    printf 'gpu 0000:1b:00.0\ngpu 0000:3d:00.0\n' >machine
    model="$srcdir/etc/demo/digits.onnx --data $srcdir/etc/demo/digits-train.safetensors"
    model="$model --batchnorm-samples 4"
    # What a kernel takes on the stand-in says nothing, and takes long.
    [ -e ../cost.json ] || "$TASUKI" profile $model --optimizer momentum --batch-size 4,16 \
        --threads 1 -q -o ../cost.json
    model="$model --cost ../cost.json --global-batch 16"
    model="$model --steps 3 --lr 0.03 --optimizer momentum --threads 1 -q"
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

# Numbers of 8 bits, or of 11: a loss of some steps.
near_curve() {
    paste <(losses "$1") <(losses "$2") | awk -v bound="$([ "$1" = bf16 ] && echo 1e-2 || echo 1.25e-3)" '
        function abs(x) { return x < 0 ? -x : x }
        abs($1 - $2) > bound * abs($2) { print; bad = 1 }
        END { exit bad || NR != 3 }'
}

@test "16 bits: curves of one stage, of two, run again, and of replicas are near float32's" {
    local plan name net ranks precision
    for name in transformer transformer-post tied; do
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

@test "every operator in bfloat16 is near the reference, cuDNN's attention among them" {
    TASUKI_TEST_BACKEND=cuda-bf16 on_fake "$builddir/tests/unit/test_ops"
}

@test "every operator in float16 is near the reference, cuDNN's attention among them" {
    TASUKI_TEST_BACKEND=cuda-fp16 on_fake "$builddir/tests/unit/test_ops"
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
    net="--data $data/train.safetensors --threads 1 -q --lr 0.03"
    on_fake "$TASUKI" plan "$data/model.onnx" --data "$data/train.safetensors" --global-batch 8 -q \
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

@test "a GPU without bfloat16 is named, with what it has" {
    printf 'gpu 0000:1b:00.0\ncompute 7.0\n' >machine
    run on_fake "$TASUKI" train $model --device cuda --stages 1 --precision bf16
    echo "$output"
    [ "$status" -eq 1 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == *"Fake GPU, sm_70, CUDA "*": no bfloat16 before sm_80: --precision fp16, or float32" ]]
    on_fake "$TASUKI" train $model --device cuda --stages 1 --precision fp16 --log log
    grep -q '"device":"Fake GPU, sm_70, CUDA [0-9.]*, FP16"' log
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
    for plan in "--stages 1 --micro-batches 2" "--stages 1 --replicas 2 --zero --clip-norm 1" \
        "--schedule zb-h1 --stages 2 --replicas 1,1 --micro-batches 4"; do
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
    for program in test_cuda_product test_update; do
        TASUKI_FAKE_SEED=$RANDOM TASUKI_TEST_BACKEND=cuda run on_fake "$builddir/tests/unit/$program"
        echo "$output"
        [ "$status" -eq 0 ]
        [[ "$output" != *SKIPPED* ]]
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

@test "plans over ranks with GPUs have the curve of one CPU" {
    needs_mpi
    export TASUKI_FAKE_WATCH=1
    "$TASUKI" train $model --log cpu.jsonl --stages 1 --micro-batches 1
    for plan in "--stages 2 --replicas 1,1 --micro-batches 4" \
        "--stages 1 --replicas 2 --micro-batches 1" \
        "--stages 1 --replicas 2 --micro-batches 2 --zero" \
        "--schedule interleaved --stages 4 --replicas 1,1,1,1 --micro-batches 4"; do
        echo "$plan"
        rm -f cuda.jsonl
        TASUKI_FAKE_SEED=$RANDOM timeout 300 mpirun -n 2 \
            -x LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" "$TASUKI" train $model \
            --device cuda --log cuda.jsonl $plan
        same_curve cuda.jsonl cpu.jsonl
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
