# SPDX-License-Identifier: MIT
# --offload optimizer: state that GPUs do not have in their own memory, on stand-ins of the CUDA runtime.

load common

setup() {
    local mlp=$srcdir/tests/data/model/mlp
    use_stand_in
    export TASUKI_MEASURE=none
    stand_in_is_sanitized || export TASUKI_FAKE_WATCH=1
    printf 'gpu 0000:%s:00.0\n' 1b 3d 5f 7a >machine
    network="$mlp/model.onnx --data $mlp/train.safetensors --loss cross-entropy:logits,label"
    [ -e ../cost.json ] || "$TASUKI" profile $network --batch-size 6,12,24 --threads 1 -q \
        -o ../cost.json
    model="$network --cost ../cost.json --global-batch 24 --threads 1 -q"
    one="--stages 1 --micro-batches 2"
    # Shards are compared, and so cuts have to be the same.
    four="--stages 2 --replicas 2,2 --zero --micro-batches 2"
    four="$four --pin /layers/layers.5/Relu=0 --pin /layers/layers.7/Relu=1"
}

on_fake() {
    TASUKI_FAKE_SEED=$RANDOM LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" \
        timeout -s KILL 300 "$@"
}

# train NAME STEPS OPTION...: into the log and the folder of checkpoints of that name.
train() {
    local name=$1 steps=$2
    shift 2
    on_fake "$TASUKI" train $model --device cuda --steps "$steps" --log "$name.log" \
        --checkpoint "$name" "$@"
}

# Four ranks of one process, which the stand-in cannot tell apart to say what their host has waited for.
train_four() {
    local name=$1 steps=$2
    shift 2
    (unset TASUKI_FAKE_WATCH
    train "$name" "$steps" --ranks-in-process 4 $four "$@")
}

losses() {
    sed -nE 's/^\{"step":.*"loss":([^,]*),.*/\1/p' "$1.log"
}

# The bits of losses, and of what the newest checkpoints have.
same() {
    local file
    [ -n "$(losses "$1")" ]
    diff <(losses "$1") <(losses "$2")
    for file in "$1"/step-*/*.safetensors; do
        cmp "$file" "$2/${file#*/}"
    done
}

# Bytes: of each stage by the plan, and of each rank at its peak.
planned() {
    grep '"event":"start"' "$1.log" | grep -oE '"memory":[0-9.]+,"memory_limit"' |
        sed -E 's/^[^0-9]*([0-9]+).*/\1/' | head -n "${2-1}"
}

peaks() {
    sed -nE 's/.*"event":"memory","peak":\[([^]]*)\].*/\1/p' "$1.log" | tr , '\n'
}

@test "state in memory of the host gives the bits of state on the GPU, and takes none of its memory" {
    local optimizer states bytes
    for optimizer in "momentum 1" "adamw 2" "lamb 2"; do
        set -- $optimizer
        echo "$1"
        train "with-$1" 3 $one --optimizer "$1" --offload optimizer
        train "without-$1" 3 $one --optimizer "$1" --offload none
        same "with-$1" "without-$1"
        grep -q '"offload":"optimizer"' "with-$1.log"
        [ "$(planned "with-$1")" = "$(peaks "with-$1")" ]
        [ "$(planned "without-$1")" = "$(peaks "without-$1")" ]
        bytes=$(($(peaks "without-$1") - $(peaks "with-$1")))
        echo "$bytes bytes of state"
        [ "$bytes" -gt 0 ]
        [ -n "$states" ] || states=$bytes
        [ "$bytes" -eq $((states * $2)) ]
    done
    grep -q ', offload, predicted' <(train said 1 $one --optimizer adamw --offload optimizer -v 2>&1)
}

@test "replicas of two stages with ZeRO-1 each have their share there, and the same bits" {
    local optimizer name
    for optimizer in momentum adamw; do
        echo "$optimizer"
        train_four "with-$optimizer" 3 --optimizer $optimizer --offload optimizer
        train_four "without-$optimizer" 3 --optimizer $optimizer
        same "with-$optimizer" "without-$optimizer"
        for name in with without; do
            paste <(planned "$name-$optimizer" 2 | sed p) <(peaks "$name-$optimizer") \
                >"$name.memory"
            cat "$name.memory"
        done
        # What plan and GPU have less of is the same, of each rank.
        paste without.memory with.memory | awk '
            $1 - $3 != $2 - $4 || $2 <= $4 { bad = 1 }
            END { exit bad || NR != 4 }'
    done
    [ -z "$(no_mpi)" ] || return 0
    mpi_environment
    on_fake mpirun -n 4 "$TASUKI" train $model --device cuda --steps 3 --log ordered.log $four \
        --checkpoint ordered --optimizer adamw --offload optimizer
    same with-adamw ordered
}

@test "a run is gone on with where its state was, elsewhere, and on a CPU" {
    local from to
    train whole 4 $one --optimizer adamw
    for from in none optimizer; do
        for to in none optimizer; do
            echo "$from, $to"
            train "$from-$to" 2 $one --optimizer adamw --offload $from
            train "$from-$to" 4 $one --resume --offload $to
            same whole "$from-$to"
        done
    done
    # Where nothing is said it stays.
    train kept 2 $one --optimizer adamw --offload optimizer
    train kept 4 --resume
    same whole kept
    [ "$(grep -c '"offload":"optimizer"' kept.log)" -eq 2 ]
    # Other ranks take it over, and a CPU, which has no other place for it.
    train_four moved 2 --optimizer adamw --offload optimizer
    train moved 3 $one --resume --offload optimizer
    "$TASUKI" train $model --device cpu --steps 4 --log moved.log --checkpoint moved --resume
    [ "$(grep -c '"offload":"optimizer"' moved.log)" -eq 2 ]
    paste <(losses whole) <(losses moved) | awk '
        { off = $1 - $2 } off * off > 1e-10 * $2 * $2 { bad = 1 } END { exit bad || NR != 4 }'
}

@test "averages stay on the GPU, and what goes back to a checkpoint has its state" {
    local name
    for name in optimizer none; do
        train $name 4 $one --optimizer adamw --offload $name --ema 0.9 --checkpoint-every 2
    done
    same optimizer none
    [ "$(planned optimizer)" = "$(peaks optimizer)" ]
    grep -q '"kind": *"ema"' optimizer/step-*/state.json
}

@test "a plan keeps it, and a run that says otherwise is refused" {
    local given="--device cuda --threads 1 --cluster flat:1,bandwidth=1e9,memory=1e9"
    on_fake "$TASUKI" plan $network --cost ../cost.json --global-batch 24 $given --micro-batches 2 \
        --optimizer adamw --offload optimizer -o plan.json | grep -q ', offload, 2 micro-batches'
    grep -q '"offload": "optimizer"' plan.json
    given="${network#* } $given -q --steps 3"
    on_fake "$TASUKI" train plan.json $given --log plan.log
    train direct 3 $one --optimizer adamw
    diff <(losses plan) <(losses direct)
    [ "$(planned plan)" = "$(peaks plan)" ]
    run on_fake "$TASUKI" train plan.json $given --offload none
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"plan.json: a plan with other stages"*"--offload"*"plan again" ]]
    sed 's/"offload": "optimizer"/"offload": "all"/' plan.json >bad.json
    run on_fake "$TASUKI" train bad.json $given
    echo "$output"
    [ "$status" -eq 1 ]
    [ "$output" = 'tasuki: error: bad.json: offload: expected "none" or "optimizer"' ]
}

@test "on CPUs it is one clear error" {
    local error='--offload optimizer needs --device cuda: on CPUs the optimizer'\''s state is in'
    for command in "train $model --steps 1" "profile $network" \
        "plan $network --global-batch 24 --cluster flat:1,bandwidth=1e9"; do
        run "$TASUKI" $command --device cpu --offload optimizer
        echo "$output"
        [ "$status" -eq 2 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ "$output" == *"$error memory of the host without it" ]]
    done
    run "$TASUKI" train $model --steps 1 --device cpu --offload all
    [ "$status" -eq 2 ]
}

@test "what an update takes is measured with its state there, and estimated by the wires of the node" {
    local offload flops='"flops": 1e15, "memory_bandwidth": 1e12'
    on_fake "$TASUKI" profile $network --batch-size 6 --threads 1 -q --device cuda --optimizer adamw \
        --offload optimizer -o measured.json
    on_fake "$TASUKI" profile $network --batch-size 6 --threads 1 -q --device cuda --optimizer adamw \
        --offload optimizer --format text | grep -q optimizer
    cat >cluster.json <<END
{ "schema": "tasuki-topo", "version": 1, "name": "two", "root": { "children": [
  { "kind": "node", "name": "n", "bandwidth": 1e10, "children": [
    { "kind": "island", "name": "i", "bandwidth": 6e9, "flow_bandwidth": 4e9, "children": [
      { "kind": "device", "id": "0", "device": "G", "bandwidth": 1e11, $flops },
      { "kind": "device", "id": "1", "device": "G", "bandwidth": 1e11, $flops } ] } ] } ] } }
END
    for offload in none optimizer; do
        "$TASUKI" profile $network --batch-size 6 --roofline --cluster cluster.json \
            --optimizer adamw --offload $offload -o $offload.json
    done
    # Of a byte of parameters: 7 in the GPU's memory; with its state away, 2 each way over half of 6 GB/s.
    steps() { grep -oE '"step": [0-9.e-]+' "$1.json" | grep -oE '[0-9.e-]+$'; }
    paste <(steps none) <(steps optimizer) | awk '
        { off = ($2 / $1) / (2 / 3e9 / (7 / 1e12)) - 1 } off * off > 1e-12 { print; bad = 1 }
        END { exit bad || NR < 2 }'
}
