# SPDX-License-Identifier: MIT
# What the ranks of a run read of files that they share, counted by tests/count_reads.c.

load data.bash

setup() {
    ranks_setup
    HERE=$(readlink -f "$DIR")
    READS=$DIR/reads
    DATA=$srcdir/etc/demo/digits-train.safetensors
    FOLDER=$HERE/shared
    export TASUKI_PKGLIBDIR=$builddir/.libs
    mkdir "$FOLDER"
    (cd "$FOLDER" && network | "$builddir/tests/make_onnx" net.onnx weights.bin 8192)
}

# A parameter that two stages share, and two in a file of their own.
network() {
    cat <<'TEXT'
input image float batch,1,8,8
node Flatten image -> x
init a float 64,64
node Gemm x,a -> a1
node Relu a1 -> a2
external b float 64,64 weights.bin 0 16384
node Gemm a2,b -> b1
node Relu b1 -> b2
external c float 64,64 weights.bin 16384 16384
node Gemm b2,c -> c1
node Relu c1 -> c2
node Gemm c2,a -> d1
node Relu d1 -> d2
init e float 64,10
init f float 10
node Gemm d2,e,f -> y
output y
TEXT
}

# train MODEL ARGUMENTS...
train() {
    local model=$1
    shift
    timeout 120 $LAUNCHER "$TASUKI" train "$FOLDER/$model" --data "$DATA" --global-batch 64 \
        --seed 5 --optimizer adam --deterministic --no-cache -q "$@"
}

# counted RANKS MODEL ARGUMENTS...: a run of that many processes, whose reads are counted.
counted() {
    local LAUNCHER="mpirun -n $1 env TASUKI_READS=$READS TASUKI_READS_OF=$FOLDER/
        LD_PRELOAD=$builddir/tests/.libs/count_reads.so"
    shift
    rm -f "$READS"
    train "$@"
}

# once FILE...: each was opened once, and no more was read of it than there is.
once() {
    local file size
    for file; do
        size=$(stat -c %s "$file")
        awk -v file="$file" -v size="$size" '
            $1 == "open" && $2 == file { opens++ }
            $1 == "bytes" && $3 == file { bytes += $2 }
            END {
                print file ": opened " opens + 0 " times, " bytes + 0 " of " size " bytes"
                exit opens != 1 || bytes < 1 || bytes > size
            }' "$READS"
    done
}

# same LOG LOG STEPS: float32 leaves sums over replicas so close.
same() {
    paste <(losses "$1") <(losses "$2") | awk -v steps="$3" '
        { d = $1 - $2; if (d > 1e-5 || d < -1e-5) bad = 1 }
        END { exit bad || NR != steps }'
}

@test "64 ranks read the model, its external weights and a checkpoint once" {
    has_mpi || skip "no MPI"
    local plan="--stages 4 --replicas 16,16,16,16"
    counted 64 net.onnx $plan --steps 1 --log "$DIR/log" --checkpoint "$FOLDER/out"
    once "$FOLDER/net.onnx" "$FOLDER/weights.bin"
    counted 64 net.onnx $plan --steps 2 --log "$DIR/log" --resume-from "$FOLDER/out"
    once "$FOLDER/net.onnx" "$FOLDER/weights.bin" "$FOLDER"/out/latest \
        "$FOLDER"/out/step-00000001/*
    train net.onnx --steps 2 --log "$DIR/one"
    same "$DIR/log" "$DIR/one" 2
}

@test "ranks read a file of --init once" {
    has_mpi || skip "no MPI"
    network | sed -E 's/^(init|external) (.) float ([0-9,]*).*/absent \2 float \3/' |
        "$builddir/tests/make_onnx" "$FOLDER/bare.onnx"
    train net.onnx --steps 1 --checkpoint "$DIR/out"
    "$TASUKI" export "$DIR/out" --format safetensors -o "$FOLDER/start.safetensors"
    counted 8 bare.onnx --stages 4 --replicas 2,2,2,2 --steps 3 --log "$DIR/log" \
        --init "$FOLDER/start.safetensors"
    once "$FOLDER/bare.onnx" "$FOLDER/start.safetensors"
    train bare.onnx --steps 3 --log "$DIR/one" --init "$FOLDER/start.safetensors"
    same "$DIR/log" "$DIR/one" 3
}

@test "ranks without the model's files have them from the first" {
    has_mpi || skip "no MPI"
    # Rank 1 stands in a folder that has none.
    mkdir "$DIR/elsewhere"
    train net.onnx --steps 3 --log "$DIR/one"
    cat >"$DIR/rank" <<'SCRIPT'
[ "${OMPI_COMM_WORLD_RANK:-0}" -eq 0 ] || cd ../elsewhere
exec "$TASUKI" train net.onnx "$@"
SCRIPT
    (cd "$FOLDER" && TASUKI=$TASUKI timeout 120 mpirun -n 2 bash "$DIR/rank" --stages 2 \
        --data "$(readlink -f "$DATA")" --global-batch 64 --seed 5 --optimizer adam --no-cache \
        --deterministic -q --steps 3 --log "$DIR/log")
    same "$DIR/log" "$DIR/one" 3
}
