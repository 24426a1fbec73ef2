# tasuki import: a user's Python becomes ONNX and safetensors, or one clear error.

setup() {
    cd "$BATS_TEST_TMPDIR"
    cat >data.py <<'END'
import array

def broken():
    rows = []
    return rows[3]

class Sums:
    def __iter__(self):
        for i in range(5):
            yield {"x": [i, 0.5], "label": i % 3}

pairs = [([1.0, 2.0], 1), ([3.0, 4.0], 0)]
uneven = [([1.0, 2.0], 1), ([3.0], 0)]
triples = [(1, 2, 3)]
number = 7

class Lost:
    def __len__(self):
        return 3
    def __getitem__(self, i):
        raise IOError(f"no picture {i}")
END
}

# A Python with these modules, or skip.
python_with() {
    local python
    [ "${TASUKI_PYTHON-}" != none ] || skip "TASUKI_PYTHON=none"
    for python in "${TASUKI_PYTHON-}" python3; do
        [ -n "$python" ] && "$python" -c "import $1" 2>/dev/null || continue
        export TASUKI_PYTHON=$python
        return 0
    done
    skip "no Python with $1 here"
}

# Name, type and shape of each tensor.
tensors() {
    PYTHONPATH="$srcdir/tests/model" PYTHONDONTWRITEBYTECODE=1 python3 -c '
import sys, tensors
for name, (kind, shape, values) in sorted(tensors.read(sys.argv[1]).items()):
    print(name, kind, "x".join(map(str, shape)), *values[:4])' "$1"
}

@test "what import is to do must be said in full" {
    run "$TASUKI" import -o net.onnx
    [ "$status" -eq 2 ] && [[ "$output" == *"expected FILE.py:NAME"* ]]
    for source in net.py net.py: :make; do
        run "$TASUKI" import "$source" --input x:2x3 -o net.onnx
        [ "$status" -eq 2 ] && [[ "$output" == *"\"$source\": expected FILE.py:NAME"* ]]
    done
    for output in "" "-o -" "-o net.pt" "-o .onnx"; do
        run "$TASUKI" import net.py:make --input x:2x3 $output
        [ "$status" -eq 2 ] && [[ "$output" == *"-o FILE.onnx for a model"* ]]
    done
    run "$TASUKI" import net.py:make -o net.onnx
    [ "$status" -eq 2 ] && [[ "$output" == *"--input"*"is missing"* ]]
}

@test "an input that makes no sense is a usage error that shows it" {
    for spec in x :2x3 x: x:3x x:0x2 x:3,4 x:-1 x:2x99999999999 x:3x4: x:3x4:float16 x:3x4:int64: \
        x:1x1x1x1x1x1x1x1x1; do
        run "$TASUKI" import net.py:make --input "$spec" -o net.onnx
        echo "$output"
        [ "$status" -eq 2 ]
        [[ "$output" == *"--input \"$spec\": "*"such as x:64x512"* ]]
    done
    run "$TASUKI" import net.py:make --input x:2 --input x:3 -o net.onnx
    [ "$status" -eq 2 ] && [[ "$output" == *"this name is taken"* ]]
}

@test "options of a model are refused for data, and the other way round" {
    run "$TASUKI" import data.py:pairs --input x:2 -o d.safetensors
    [ "$status" -eq 2 ] && [[ "$output" == *"--input is for a model"* ]]
    run "$TASUKI" import data.py:pairs --no-weights -o d.safetensors
    [ "$status" -eq 2 ] && [[ "$output" == *"--weights is for a model"* ]]
    run "$TASUKI" import net.py:make --input x:2 --samples 3 -o net.onnx
    [ "$status" -eq 2 ] && [[ "$output" == *"--samples is for data"* ]]
    run "$TASUKI" import net.py:make --input x:2 --opset 12 -o net.onnx
    [ "$status" -eq 2 ] && [[ "$output" == *"--opset: expected"* ]]
    run "$TASUKI" import net.py:make --input x:2 --exporter onnx -o net.onnx
    [ "$status" -eq 2 ] && [[ "$output" == *"--exporter"* ]]
    run "$TASUKI" import data.py:pairs --names x --model net.onnx -o d.safetensors
    [ "$status" -eq 2 ] && [[ "$output" == *"say the same thing"* ]]
}

@test "no Python, and a Python without PyTorch, are said with what to do" {
    run "$TASUKI" import data.py:pairs --python ./none -o d.safetensors
    [ "$status" -eq 1 ] && [[ "$output" == *"./none: No such file"*"--python or TASUKI_PYTHON"* ]]
    command -v python3 >/dev/null || skip "no python3"
    printf '#!/bin/sh\nexec %s -S -E "$@"\n' "$(command -v python3)" >bare
    chmod +x bare
    ./bare -c "import torch" 2>/dev/null && skip "PyTorch is in Python itself"
    run "$TASUKI" import net.py:make --python ./bare --input x:2x3 -o net.onnx
    [ "$status" -eq 1 ]
    [[ "$output" == *"has no torch and no onnx and no onnxscript: install with"* ]]
    [ "$(ls)" = "$(printf 'bare\ndata.py')" ]
}

@test "samples one by one, by name or in order, become tensors" {
    python_with numpy
    "$TASUKI" import data.py:Sums -o d.safetensors
    [ "$(tensors d.safetensors)" = "$(printf 'label I64 5 0 1 2 0\nx F32 5x2 0.0 0.5 1.0 0.5')" ]
    "$TASUKI" import data.py:Sums --names label --samples 2 -q -o d.safetensors
    [ "$(tensors d.safetensors)" = "label I64 2 0 1" ]
    "$TASUKI" import data.py:pairs -q -o d.safetensors
    [ "$(tensors d.safetensors)" = "$(printf 'label I64 2 1 0\nx F32 2x2 1.0 2.0 3.0 4.0')" ]
    "$TASUKI" import data.py:pairs -q --model "$srcdir/tests/data/model/mlp/model.onnx" \
        -o d.safetensors
    [ "$(tensors d.safetensors | cut -d' ' -f1 | paste -sd' ')" = "label x" ]
    "$TASUKI" import data.py:triples --names a,b,c -q -o d.safetensors
    [ "$(tensors d.safetensors | cut -d' ' -f1 | paste -sd' ')" = "a b c" ]
    [ ! -e __pycache__ ]
}

@test "data that cannot be taken leave no file, and an older one as it was" {
    python_with numpy
    echo old >d.safetensors
    while IFS='|' read -r name text; do
        run "$TASUKI" import "data.py:$name" -o d.safetensors
        echo "$output"
        [ "$status" -eq 1 ]
        [[ "$output" == *"$text"* ]]
        [ "$(cat d.safetensors)" = old ]
        [ "$(ls -A)" = "$(printf 'd.safetensors\ndata.py')" ]
    done <<'END'
broken|data.py:broken: IndexError: list index out of range
broken|data.py:5, in broken
Lost|OSError: no picture 0
uneven|sample 1: "x" is float32 1, those before it float32 2
triples|a sample is 3 values: say --names
number|a int is neither tensors nor a data set
nothing|data.py: there is no nothing; it has Lost, Sums, broken
END
    run "$TASUKI" import data.py:pairs -o nowhere/d.safetensors
    [ "$status" -eq 1 ] && [[ "$output" == *"nowhere/d.safetensors: no such folder"* ]]
    run "$TASUKI" import other.py:pairs -o d.safetensors
    [ "$status" -eq 1 ] && [[ "$output" == *"other.py: no such file"* ]]
}

@test "a model imports without weights, and one that fails leaves an older file as it was" {
    python_with torch,onnx,onnxscript
    cat >net.py <<'END'
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16, padding_idx=3)
        self.register_buffer("place", torch.arange(12.0))
        self.head = torch.nn.Linear(16, 50)

    def forward(self, ids, mask):
        x = self.embed(ids) + self.place[:ids.shape[1], None] * mask[..., None]
        return {"logits": self.head(x), "cache": None}
END
    run "$TASUKI" import net.py:Net --input ids:1x12:int64 --input mask:1x12 --no-weights \
        -o net.onnx
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"net.onnx: Net, 1650 parameters without weights"*"outputs logits"* ]]
    [[ "$output" == *'warning: "embed" does not train its row 3 (padding_idx)'* ]]
    run "$TASUKI" inspect net.onnx --batch-size 3
    echo "$output"
    [[ "$output" == *"parameters     1650 in 3 tensors"* ]]
    cp net.onnx old
    run "$TASUKI" import net.py:Net --input ids:1x12 --input mask:1x12 -o net.onnx
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"exporter failed"*"net.py:11, in forward"* ]]
    cmp net.onnx old
    [ "$(ls -A)" = "$(printf 'data.py\nnet.onnx\nnet.py\nold')" ]
}
