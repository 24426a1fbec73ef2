# SPDX-License-Identifier: MIT
# A model without weights: what works, and what it starts from.

setup() {
    cd "$BATS_TEST_TMPDIR"
    command -v python3 >/dev/null || skip "no python3"
    net=$srcdir/tests/data/model/transformer
    export TASUKI_THREADS=1
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_orte_tmpdir_base=$PWD
    export PRTE_MCA_prte_tmpdir_base=$PWD
    export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    python3 -B "$srcdir/tests/model/weightless.py" "$net/model.onnx" bare.onnx
}

# train MODEL OPTION...
train() {
    local model=$1
    shift
    "$TASUKI" train "$model" --data "$net/train.safetensors" --global-batch 24 --steps 4 \
        --precision float64 --micro-batches 4 -q "$@"
}

# losses LOG
losses() {
    python3 -c 'import json, sys
for line in map(json.loads, open(sys.argv[1])):
    if "step" in line and "event" not in line:
        print(line["loss"])' "$1"
}

# same LOG LOG: the curves agree within 1e-10
same() {
    paste <(losses "$1") <(losses "$2") |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-10 * $1) bad = 1; n++ }
             END { exit bad || n != 4 }'
}

@test "inspect, plan, profile and simulate need no weights" {
    "$TASUKI" inspect "$net/model.onnx" | tail -n +2 >with
    "$TASUKI" inspect bare.onnx | tail -n +2 >without
    diff with without
    "$TASUKI" profile bare.onnx --batch-size 2 -q --no-cache >table
    grep -q '^Linear ' table
    "$TASUKI" plan bare.onnx --global-batch 8 --no-cache -q -o plan.json \
        --cluster flat:2,bandwidth=1e9,memory=1e9
    "$TASUKI" simulate plan.json -q >/dev/null
}

@test "training without weights says what to do, and --init with weights is refused" {
    run train bare.onnx
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *'bare.onnx: has no weights for "token.weight" and others: say --init=fan-in'* ]]
    run train "$net/model.onnx" --init=fan-in
    [ "$status" -eq 2 ]
    [[ "$output" == *"--init: $net/model.onnx has its weights"* ]]
    run train bare.onnx --init=nowhere.safetensors
    [ "$status" -eq 1 ]
    [[ "$output" == *"nowhere.safetensors: No such file"* ]]
}

@test "by rule, every plan starts alike, fused or not, and the seed decides" {
    train bare.onnx --log one --init
    train bare.onnx --log unfused --init=fan-in --no-fuse
    same one unfused
    train bare.onnx --log other --init=fan-in --seed 1
    ! same one other || false
    command -v mpirun >/dev/null || skip "no mpirun"
    mpirun -n 3 "$TASUKI" train bare.onnx --data "$net/train.safetensors" --global-batch 24 \
        --steps 4 --precision float64 --micro-batches 4 -q --stages 2 --replicas 1,2 \
        --init=fan-in --log three
    same one three
}

@test "from a file, the run is that of the model that the file is from" {
    train "$net/model.onnx" --log whole
    train "$net/model.onnx" --steps 1 --lr 0 --checkpoint start
    "$TASUKI" export start -o start.safetensors -q
    train bare.onnx --init=start.safetensors --log bare
    same whole bare
    # What a checkpoint has needs no --init, and is exported with weights.
    train bare.onnx --init=start.safetensors --steps 2 --checkpoint out
    train bare.onnx --resume --checkpoint out --log rest
    [ "$(losses rest)" = "$(losses bare | tail -n 2)" ]
    "$TASUKI" export out -o trained.onnx -q
    train trained.onnx --steps 1
}

@test "a file that does not fit is refused by the name of the tensor" {
    write() {
        PYTHONPATH="$srcdir/tests/model" python3 -B -c 'import sys, tensors
tensors.write("part.safetensors", {"token.weight": (sys.argv[1], [2, 2], [1, 2, 3, 4])})' "$1"
    }
    write F32
    run train bare.onnx --init=part.safetensors
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *'part.safetensors: tensor "token.weight" is 2x2, in the model '* ]]
    write I64
    run train bare.onnx --init=part.safetensors
    [[ "$output" == *'tensor "token.weight": I64, where float32 or float64 is expected'* ]]
    "$TASUKI" train "$net/model.onnx" --data "$net/train.safetensors" --global-batch 24 -q \
        --steps 1 --freeze 'layers.*' --checkpoint few
    mv few/step-00000001/shard-0000.safetensors few.safetensors
    run train bare.onnx --init=few.safetensors
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *'few.safetensors: no tensor "layers.0.'*', for which the model has no values'* ]]
}

@test "weights that stand beyond 2 GB and 4 GB of a file beside the model are read there" {
    train "$net/model.onnx" --log whole
    train "$net/model.onnx" --steps 1 --lr 0 --checkpoint start
    "$TASUKI" export start -o start.safetensors -q
    # A sparse file: it takes no more room than the weights.
    PYTHONPATH="$srcdir/tests/model:$srcdir/tests" python3 -B - "$net/model.onnx" <<'END'
import array
import sys
import tensors
import weightless

places, at = [], 3 * 10 ** 9 + 1
with open("big.bin", "wb") as file:
    for name, (kind, shape, values) in tensors.read("start.safetensors").items():
        file.seek(at)
        file.write(array.array("f", values).tobytes())
        places.append(f"{name}=big.bin:{at}")
        at += 10 ** 9 // 8
weightless.main(sys.argv[1], "big.onnx", *places)
END
    [ "$(stat -c %s big.bin)" -gt 4294967296 ]
    [ "$(du -k big.bin | cut -f1)" -lt 2000 ]
    train big.onnx --log big
    same whole big
    "$TASUKI" inspect big.onnx | tail -n +2 >there
    "$TASUKI" inspect "$net/model.onnx" | tail -n +2 | diff - there
}
