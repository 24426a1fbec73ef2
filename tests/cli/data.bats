# SPDX-License-Identifier: MIT
# Formats of data: what is read is the same on any number of ranks and after a resume.

setup() {
    . "$srcdir/tests/cli/data.bash"
    ranks_setup
    DEMO=$srcdir/etc/demo
    DIGITS="$DEMO/digits.onnx --global-batch 8 --batchnorm-samples 2"
    MLP=$srcdir/tests/data/model/mlp
}

@test "arrays in .npy files give the curve of the same data in safetensors" {
    need_python
    python3 "$srcdir/tests/cli/make-data.py" npy "$MLP/train.safetensors" "$DIR/arrays"
    x=$(basename "$(ls "$DIR/arrays" | grep -v label)" .npy)
    y=$(basename "$(ls "$DIR/arrays" | grep label)" .npy)
    for data in "$MLP/train.safetensors" "$DIR/arrays" \
        "$x=$DIR/arrays/$x.npy,$y=$DIR/arrays/$y.npy"; do
        curve "$DIR/log" 1 "$MLP/model.onnx" --global-batch 24 --steps 3 --data "$data"
        losses "$DIR/log" >>"$DIR/all"
    done
    [ "$(wc -l <"$DIR/all")" -eq 9 ]
    [ "$(sort -u "$DIR/all" | wc -l)" -eq 3 ]
}

@test "npy: the same on 1, 2 and 4 ranks, and after a resume in mid-epoch" {
    need_python
    python3 "$srcdir/tests/cli/make-data.py" npy "$DEMO/digits-train.safetensors" "$DIR/arrays"
    same_anywhere 6 $DIGITS --data "$DIR/arrays"
}

@test "synthetic: the same on 1, 2 and 4 ranks, and after a resume in mid-epoch" {
    same_anywhere 6 $DIGITS --data synthetic:40
}

@test "tokens: the same on 1, 2 and 4 ranks, and after a resume in mid-epoch" {
    need_python
    model=$srcdir/tests/data/model/transformer
    python3 "$srcdir/tests/cli/make-data.py" tokens "$DIR/t.bin" 400 7 header
    same_anywhere 6 "$model/model.onnx" --global-batch 8 --data "$DIR/t.bin"
    python3 "$srcdir/tests/cli/make-data.py" tokens "$DIR/raw.bin" 400 7 raw
    curve "$DIR/raw" 1 "$model/model.onnx" --global-batch 8 --steps 6 \
        --data "uint16:$DIR/raw.bin"
    diff <(losses "$DIR/1") <(losses "$DIR/raw")
}

@test "tokens that the model has no class for are an error" {
    need_python
    model=$srcdir/tests/data/model/transformer
    python3 "$srcdir/tests/cli/make-data.py" tokens "$DIR/t.bin" 400 600 header
    run "$TASUKI" train "$model/model.onnx" --global-batch 8 --steps 1 --data "$DIR/t.bin"
    [ "$status" -eq 1 ]
    [[ "$output" == *"t.bin"*"has label "*"the model has "*" classes"* ]]
    run "$TASUKI" train $DEMO/digits.onnx --global-batch 8 --steps 1 --data "$DIR/t.bin"
    [ "$status" -eq 1 ]
    [[ "$output" == *"is for no tokens"* ]]
}

# Two shards of pictures; the one given is bad.
make_shards() {
    "$builddir/tests/make_tar" "$DIR/p-00.tar" 0 25 10 "$@" || skip "no libjpeg, no libarchive"
    "$builddir/tests/make_tar" "$DIR/p-01.tar" 25 20 10
}

@test "tars: the same on 1, 2 and 4 ranks, and after a resume in mid-epoch" {
    make_shards
    same_anywhere 6 $DIGITS --data "$DIR/p-{00..01}.tar" --test "$DIR/p-*.tar"
    for threads in 0 3; do
        curve "$DIR/threads" 1 $DIGITS --steps 6 --data "$DIR/p-{00..01}.tar" \
            --test "$DIR/p-*.tar" --data-threads $threads
        diff <(losses "$DIR/1") <(losses "$DIR/threads")
        diff <(tested "$DIR/1") <(tested "$DIR/threads")
    done
    [ -n "$(tested "$DIR/1")" ]
    ! has_mpi || diff <(tested "$DIR/1") <(tested "$DIR/4")
}

@test "a picture that is cut off is named and left out, if so many may be" {
    make_shards 3
    run "$TASUKI" train $DIGITS --steps 1 --data "$DIR/p-*.tar"
    [ "$status" -eq 1 ]
    [[ "$output" == *'p-00.tar: sample "pictures/000003": '* ]]
    [[ "$output" == *"1 of 45, more than --max-bad-samples 0"* ]]
    run "$TASUKI" train $DIGITS --steps 6 --data "$DIR/p-*.tar" --max-bad-samples 1 \
        --no-augment --image-mean 0.5 --image-std 0.25 --log "$DIR/log"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *'sample "pictures/000003": '* ]]
    [[ "$output" == *"1 bad samples are left out"* ]]
    [[ "$output" == *"4 of 44 samples of each epoch do not fill a batch"* ]]
    run "$TASUKI" train $DIGITS --steps 1 --data "$DIR/p-*.tar" --image-mean 0.5
    [ "$status" -eq 2 ]
    [[ "$output" == *"--image-mean and --image-std go together"* ]]
}

@test "an error of a sample that was read ahead ends the run, by name" {
    need_python
    model=$srcdir/tests/data/model/transformer
    python3 "$srcdir/tests/cli/make-data.py" tokens "$DIR/t.bin" 400 7 header
    printf '\377\377' | dd of="$DIR/t.bin" bs=1 seek=$((32 + 2 * 200)) conv=notrunc status=none
    run "$TASUKI" train "$model/model.onnx" --global-batch 8 --epochs 1 --data "$DIR/t.bin"
    [ "$status" -eq 1 ]
    [[ "$output" == *"t.bin: token 200 is 65535, the header says a vocabulary of 7"* ]]
}

# killed_goes_on ARGUMENTS...: no sample of the epoch is lost or comes twice. A multiple of 43 steps
# is no whole number of epochs before step 200, where an epoch has 5 steps or more.
killed_goes_on() {
    local pid n
    set -- "$@" --steps 200
    rm -rf "$DIR/out" "$DIR/after"
    curve "$DIR/whole" 1 "$@"
    TASUKI_TEST_DELAY=1:5000 "$TASUKI" train --precision float64 --seed 5 -q "$@" \
        --checkpoint "$DIR/out" --checkpoint-every 43 3>&- &
    pid=$!
    while [ ! -e "$DIR/out/latest" ]; do
        kill -0 $pid
        sleep 0.05
    done
    kill -KILL $pid
    wait $pid || true
    curve "$DIR/after" 1 "$@" --checkpoint "$DIR/out" --resume
    n=$(losses "$DIR/after" | wc -l)
    [ $((n % 43)) -eq $((200 % 43)) ]
    [ "$(grep '^{"step"' "$DIR/whole" | tail -n $((n + 1)) | head -n 2 |
        sed -E 's/.*"epoch":([0-9]*).*/\1/' | uniq | wc -l)" -eq 1 ]
    diff <(losses "$DIR/after") <(losses "$DIR/whole" | tail -n "$n")
}

@test "what was killed in mid-epoch goes on with the samples that come next, in each format" {
    need_python
    make_data() { python3 "$srcdir/tests/cli/make-data.py" "$@"; }
    local mlp="$MLP/model.onnx --global-batch 20"
    killed_goes_on $mlp --data "$MLP/train.safetensors"
    make_data npy "$MLP/train.safetensors" "$DIR/arrays"
    killed_goes_on $mlp --data "$DIR/arrays"
    make_data tokens "$DIR/t.bin" 400 7 header
    killed_goes_on "$srcdir/tests/data/model/transformer/model.onnx" --global-batch 8 \
        --data "$DIR/t.bin"
    killed_goes_on $mlp --data synthetic:130
    make_shards
    killed_goes_on $DIGITS --data "$DIR/p-*.tar"
}

@test "synthetic samples suit text and images, and follow from the seed" {
    for seed in 1 1 2; do
        "$TASUKI" train "$srcdir/tests/data/model/transformer/model.onnx" --global-batch 8 \
            --steps 1 --data synthetic:16 --test synthetic:16 --seed $seed -q --log "$DIR/log" \
            --backend reference
        losses "$DIR/log" >>"$DIR/all"
    done
    [ "$(sort -u "$DIR/all" | wc -l)" -eq 2 ]
    run "$TASUKI" inspect $DEMO/digits.onnx --data synthetic --image-size 9
    [ "$status" -eq 1 ]
    [[ "$output" == *"--image-size 9: dimension "*" is 8"* ]]
    run "$TASUKI" inspect "$srcdir/tests/data/model/transformer/model.onnx" --data synthetic \
        --sequence-length 7
    [ "$status" -eq 1 ]
    [[ "$output" == *"--sequence-length 7: dimension "* ]]
    run "$TASUKI" inspect $DEMO/digits.onnx --data synthetic:none
    [ "$status" -eq 1 ]
    [[ "$output" == *"expected synthetic:SAMPLES"* ]]
}

@test "ranks that find different samples are named" {
    has_mpi || skip "no MPI"
    export TASUKI MODEL=$srcdir/tests/data/model/transformer/model.onnx
    run timeout 300 mpirun -n 2 sh -c 'exec "$TASUKI" train "$MODEL" --global-batch 8 --steps 1 \
        --data synthetic:$((64 - 32 * OMPI_COMM_WORLD_RANK)) --no-cache'
    echo "$output"
    [ "$status" -ne 0 ]
    [ "$(grep -c 'error:.*rank 1 .*finds 32 samples, rank 0 .* 64' <<<"$output")" -eq 1 ]
}
