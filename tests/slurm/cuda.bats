# SPDX-License-Identifier: MIT
# Training by tasuki-cuda.so, over stand-ins of the CUDA runtime that run its kernels on the host.

load common
load cuda

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
            python3 - <<'END'
import json
here, elsewhere = (json.load(open(f"{where}.json"))["stages"] for where in ("here", "elsewhere"))
for a, b in zip(here, elsewhere):
    blocks = [block["name"] for block in a["blocks"]]
    assert blocks == [block["name"] for block in b["blocks"]]
    scratch = (256 if any(name.endswith("/Conv") for name in blocks) else 32) << 20
    print(a["memory"], b["memory"], scratch)
    assert abs(b["memory"] - a["memory"] - scratch) <= 16384
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
