# tasuki inspect: what a model is, what it costs, what of it is not supported.

setup() {
    cd "$BATS_TEST_TMPDIR"
    models="$srcdir/tests/data/model"
}

# One node x -> y of an operator nobody has, written byte by byte.
unsupported_model() {
    printf '\x08\x08\x3a\x40'                                     # ir_version 8, graph (64)
    printf '\x0a\x11\x0a\x01x\x12\x01a\x1a\x02n1\x22\x05Lstmm'    # node n1
    printf '\x0a\x10\x0a\x01a\x12\x01y\x1a\x02n2\x22\x04Scan'     # node n2
    printf '\x5a\x14\x0a\x01x\x12\x0f\x0a\x0d\x08\x01\x12\x09\x0a\x03\x12\x01b\x0a\x02\x08\x04'
    printf '\x62\x03\x0a\x01y'                                    # output y
    printf '\x42\x02\x10\x11'                                     # opset 17
}

@test "inspect prints parameters, work, memory and operators" {
    run "$TASUKI" inspect "$models/mlp/model.onnx" --batch-size 4
    [ "$status" -eq 0 ]
    [[ "$output" == *"parameters "*" tensors"* ]]
    [[ "$output" == *"work "*"forward "*"backward "* ]]
    [[ "$output" == *"activations kept"* ]]
    [[ "$output" == *"Linear "* ]]
    [[ "$output" == *"loss: cross-entropy"*"(assumed: give --loss)"* ]]
}

@test "inspect counts alike in JSON, and the forward work grows with the batch" {
    command -v python3 >/dev/null || skip "no python3"
    for size in 1 8; do
        "$TASUKI" inspect "$models/cnn/model.onnx" --batch-size $size --format json -o $size.json
    done
    python3 - <<'EOF'
import json
one, eight = json.load(open("1.json")), json.load(open("8.json"))
assert one["schema"] == "tasuki-inspect" and one["version"] == 1
assert one["parameters"] == eight["parameters"]
assert abs(eight["flops"]["forward"] / one["flops"]["forward"] - 8) < 0.1
assert sum(o["forward_flops"] for o in one["operators"]) == one["flops"]["forward"]
assert eight["memory"]["activations"] > one["memory"]["activations"]
assert one["unsupported"] == []
EOF
}

@test "inspect takes the loss from the data" {
    run "$TASUKI" inspect "$models/cnn/model.onnx" --data "$models/cnn/train.safetensors"
    [ "$status" -eq 0 ]
    [[ "$output" == *"loss: cross-entropy of"* ]]
    [[ "$output" != *"assumed"* ]]
}

@test "inspect without fusion has more nodes and as many parameters" {
    "$TASUKI" inspect "$models/transformer/model.onnx" >fused
    "$TASUKI" inspect "$models/transformer/model.onnx" --no-fuse >plain
    grep -q '^Linear ' fused
    ! grep -q '^Linear ' plain || false
    [ "$(grep ^parameters fused)" = "$(grep ^parameters plain)" ]
}

@test "inspect --fusions shows kinds, counts and nodes" {
    command -v python3 >/dev/null || skip "no python3"
    run "$TASUKI" inspect "$models/transformer/model.onnx" --fusions
    [ "$status" -eq 0 ]
    [[ "$output" == *"fusion "*" count  nodes"* ]]
    [[ "$output" == *"linear+bias "* ]]
    "$TASUKI" inspect "$models/transformer/model.onnx" --fusions --format json >with.json
    "$TASUKI" inspect "$models/transformer/model.onnx" --format json >without.json
    python3 - <<'EOF'
import json
report = json.load(open("with.json"))
found = {f["fusion"]: f for f in report["fusions"]}
linear = sum(f["count"] for name, f in found.items() if name.startswith("linear"))
assert linear == sum(o["nodes"] for o in report["operators"] if o["op"] == "Linear")
assert all(f["count"] == len(set(f["nodes"])) for f in found.values())
assert "fusions" not in json.load(open("without.json"))
EOF
    run "$TASUKI" inspect "$models/transformer/model.onnx" --fusions --no-fuse
    [ "$status" -eq 0 ]
    [[ "$output" == *"none "*" 0"* ]]
    [[ "$output" != *"linear+bias"* ]]
}

@test "inspect lists every unsupported node and exits 3" {
    unsupported_model >bad.onnx
    run "$TASUKI" inspect bad.onnx
    [ "$status" -eq 3 ]
    [[ "$output" == *"not supported  2 nodes (opset 17)"* ]]
    [[ "$output" == *'Lstmm  "n1": the operator is not supported (opset 17, main)'* ]]
    [[ "$output" == *'Scan  "n2"'* ]]
    run "$TASUKI" inspect bad.onnx --format json
    [ "$status" -eq 3 ]
    [[ "$output" == *'"node": "n2"'* ]]
    [[ "$output" == *'"scope": "main"'* ]]
}

@test "inspect names a file that is no model, in one line" {
    printf 'nonsense' >bad.onnx
    run "$TASUKI" inspect bad.onnx
    [ "$status" -eq 1 ]
    [[ "$output" == *"bad.onnx"* ]]
    [ "${#lines[@]}" -eq 1 ]
    run "$TASUKI" inspect missing.onnx
    [ "$status" -eq 1 ]
    [[ "$output" == *"missing.onnx"* ]]
    run "$TASUKI" inspect
    [ "$status" -eq 2 ]
}
