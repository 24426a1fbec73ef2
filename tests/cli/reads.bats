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
    (cd "$FOLDER" && "$builddir/tests/make_onnx" net.onnx weights.bin 8192) <<'TEXT'
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

# counted RANKS ARGUMENTS...: a run whose reads are counted.
counted() {
    local ranks=$1
    shift
    rm -f "$READS"
    timeout 120 mpirun -n "$ranks" env TASUKI_READS="$READS" TASUKI_READS_OF="$FOLDER/" \
        LD_PRELOAD="$builddir/tests/.libs/count_reads.so" "$TASUKI" train "$FOLDER/net.onnx" \
        --data "$DATA" --global-batch 64 --seed 5 --optimizer adam --deterministic --no-cache -q \
        "$@"
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

@test "64 ranks read the model, its external weights and a checkpoint once" {
    has_mpi || skip "no MPI"
    local plan="--stages 4 --replicas 16,16,16,16"
    counted 64 $plan --steps 1 --log "$DIR/log" --checkpoint "$FOLDER/out"
    once "$FOLDER/net.onnx" "$FOLDER/weights.bin"
    counted 64 $plan --steps 2 --log "$DIR/log" --resume-from "$FOLDER/out"
    once "$FOLDER/net.onnx" "$FOLDER/weights.bin" "$FOLDER"/out/latest \
        "$FOLDER"/out/step-00000001/*
    # As ever: the same curve as one rank's, here of threads.
    "$TASUKI" train "$FOLDER/net.onnx" --data "$DATA" --global-batch 64 --seed 5 --steps 2 \
        --optimizer adam --no-cache -q --log "$DIR/one"
    paste <(losses "$DIR/log") <(losses "$DIR/one") |
        awk '{ d = $1 - $2; if (d > 1e-5 || d < -1e-5) exit 1 } END { exit NR != 2 }'
}
