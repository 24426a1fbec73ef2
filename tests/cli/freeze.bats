# SPDX-License-Identifier: MIT
# --freeze: what is not trained, in every command that takes it.

setup() {
    cd "$BATS_TEST_TMPDIR"
    demo=$srcdir/etc/demo
    export TASUKI_THREADS=1
}

# train OPTION...: a short run on the digits.
train() {
    "$TASUKI" train "$demo/digits.onnx" --data "$demo/digits-train.safetensors" -q \
        --batchnorm-samples 32 --global-batch 32 --no-cache --steps 2 "$@"
}

# names FILE.safetensors
names() {
    python3 -c 'import json, struct, sys
data = open(sys.argv[1], "rb").read()
header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
print("\n".join(sorted(name for name in header if name != "__metadata__")))' "$1"
}

@test "every command refuses a pattern that matches nothing, and names the nearest" {
    for command in "inspect" "profile" "plan --global-batch 8" \
        "train --steps 1 --global-batch 8"; do
        run "$TASUKI" $command "$demo/digits.onnx" --data "$demo/digits-train.safetensors" \
            --freeze norm.wieght
        echo "$output"
        [ "$status" -eq 2 ]
        [[ "$output" == *'--freeze "norm.wieght" matches no initializer; did you mean "norm.weight"?'* ]]
    done
}

@test "inspect counts what is frozen apart from what is trained" {
    run "$TASUKI" inspect "$demo/digits.onnx" --freeze 'norm.*'
    echo "$output"
    [[ "$output" == *"frozen "*"32 in 2 tensors"*"not trained"* ]]
    [[ "$output" == *"frozen by --freeze, \"norm.weight\" first"* ]]
    "$TASUKI" inspect "$demo/digits.onnx" --freeze 'norm.*' --format json | tr -d ' \n' |
        grep -q '"frozen":{"tensors":2,'
    # No gradient towards what is frozen: 6 convolutions, of which the head knows nothing.
    "$TASUKI" inspect "$demo/digits.onnx" --freeze '*conv*' --freeze 'widen.*' --format json |
        tr -d ' \n' |
        grep -Eq '"op":"Conv","nodes":6,"forward_flops":[0-9.e+]+,"dgrad_flops":[0-9.e+]+,"wgrad_flops":0.0}'
}

@test "what is frozen stays as it is, without optimizer state, and is exported with the rest" {
    command -v python3 >/dev/null || skip "no python3"
    train --optimizer adam --freeze conv.weight --freeze 'norm.[wb]*' --checkpoint out
    "$TASUKI" export out -o all.safetensors -q
    "$TASUKI" export out -o model.onnx -q
    shard=out/step-00000002/shard-0000.safetensors
    ! names $shard | grep -E '(^|:)(conv.weight|norm.weight|norm.bias)(@|$)' || false
    names $shard | grep -q '^norm.running_mean$'
    for name in conv.weight norm.weight norm.bias; do
        names all.safetensors | grep -qx $name
    done
    train --optimizer adam --checkpoint free
    "$TASUKI" export free -o free.safetensors -q
    [ "$(names all.safetensors)" = "$(names free.safetensors)" ]
    # A network that was trained further from the export keeps them, too.
    "$TASUKI" train model.onnx --data "$demo/digits-train.safetensors" -q --no-cache --steps 2 \
        --batchnorm-samples 32 --global-batch 32 --freeze conv.weight --freeze norm.bias \
        --freeze norm.weight --checkpoint further
    "$TASUKI" export further -o further.safetensors -q
    python3 - all.safetensors further.safetensors <<'END'
import json, struct, sys

def read(path):
    data = open(path, "rb").read()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    return {name: data[start + t["data_offsets"][0]:start + t["data_offsets"][1]]
            for name, t in header.items() if name != "__metadata__"}

first, second = map(read, sys.argv[1:])
same = {name for name in first if first[name] == second[name]}
assert same == {"conv.weight", "norm.weight", "norm.bias"}, same
END
}

@test "a plan knows what is frozen, and train heeds it" {
    local cluster=flat:1,bandwidth=1e9,latency=0,memory=16e9
    "$TASUKI" plan "$demo/digits.onnx" --global-batch 32 --batchnorm-samples 32 --no-cache \
        --cluster $cluster --freeze '*conv*' --freeze '*norm*' -o plan.json -q
    grep -q '"freeze"' plan.json
    run "$TASUKI" train plan.json --data "$demo/digits-train.safetensors" --steps 2 \
        --checkpoint out
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"frozen by --freeze"* ]]
    run "$TASUKI" train plan.json --data "$demo/digits-train.safetensors" --steps 2 \
        --freeze conv.weight
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"made for other --freeze patterns"* ]]
}

@test "a resume freezes what was frozen, and refuses to freeze something else" {
    train --freeze 'norm.[wb]*' --checkpoint out
    train --steps 4 --checkpoint out --resume --log log
    [ "$(grep -c '^{"step"' log)" -eq 2 ]
    train --steps 5 --checkpoint out --resume --freeze norm.bias --freeze norm.weight
    run train --steps 6 --checkpoint out --resume --freeze conv.weight
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"made with other --freeze patterns"*"export it"* ]]
    train --checkpoint free
    run train --steps 4 --checkpoint free --resume --freeze 'norm.*'
    [ "$status" -eq 1 ]
    [[ "$output" == *"made with no --freeze"* ]]
}

@test "a job file may freeze several patterns" {
    printf 'model = %s\nfreeze = norm.weight\nfreeze = conv.*\n' "$demo/digits.onnx" >job.conf
    run "$TASUKI" inspect job.conf
    echo "$output"
    [[ "$output" == *"frozen "*"in 2 tensors"* ]]
    "$TASUKI" inspect job.conf --print-config >again.conf
    [ "$(grep -c '^freeze = ' again.conf)" -eq 2 ]
}

@test "what is frozen is not taken from another network" {
    train --freeze '*weight' --checkpoint out
    other=$srcdir/tests/data/model/mlp/model.onnx
    [ -e "$other" ]
    run "$TASUKI" export out -o all.safetensors --model "$other"
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"not the graph that"* ]]
    [ ! -e all.safetensors ]
}
