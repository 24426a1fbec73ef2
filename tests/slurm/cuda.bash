# SPDX-License-Identifier: MIT
# What tests of training on GPUs, over stand-ins, have in common.

setup() {
    use_stand_in
    printf 'gpu 0000:1b:00.0\ngpu 0000:3d:00.0\n' >machine
    model="$srcdir/etc/demo/digits.onnx --data $srcdir/etc/demo/digits-train.safetensors"
    model="$model --batchnorm-samples 4"
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
    mapfile -t drawn < <(shuf --random-source=<(yes "$RANDOM") -n "$n" -e -- "$@")
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

# 'model': what trains net.onnx, of digits, and cost.json is what that takes here.
take_net() {
    model="net.onnx --data $srcdir/etc/demo/digits-train.safetensors --loss cross-entropy:y,label"
    model="$model --threads 1 -q"
    "$TASUKI" profile $model --batch-size 4,8 -o cost.json
    model="$model --global-batch 8 --steps 3 --lr 0.03 --stages 1"
}
