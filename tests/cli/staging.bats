# SPDX-License-Identifier: MIT
# Data staged to a disk of the node: the same samples, from the copies.

setup() {
    . "$srcdir/tests/cli/data.bash"
    ranks_setup
    # In memory where that can be: runs are over soon, and syncing may take long.
    DISK=$(mktemp -d -p /dev/shm || mktemp -d)
    DEMO=$srcdir/etc/demo
    DIGITS="$DEMO/digits.onnx --global-batch 8 --batchnorm-samples 2"
    cp "$DEMO/digits-train.safetensors" "$DEMO/digits-test.safetensors" "$DIR"
    DATA=$DIR/digits-train.safetensors
    # The places of other runs, and which host it is, do not matter.
    OWN=$DISK/tasuki-$(id -u)-
}

teardown() {
    rm -rf "$DISK"
}

# Losses with all their bits.
bits() {
    grep '^{"step"' "$1" | sed -E 's/.*"loss":([^,]*),.*/\1/'
}

# wait_for COMMAND...: until it succeeds, while the job $pid lives.
wait_for() {
    until "$@"; do
        kill -0 $pid
        sleep 0.01
    done
}

# staged_alike MODEL FILE... -- ARGUMENTS...: as soon as the files are staged they are overwritten,
# and the curve is that of a run without staging, bit for bit. Delays make the runs long enough.
staged_alike() {
    local model=$1 files=() ranks pins pid size=0
    shift
    while [ "$1" != -- ]; do
        cp "$1" "$1.kept"
        files+=("$1")
        size=$((size + $(stat -c %s "$1")))
        shift
    done
    shift
    for ranks in 1 2 4; do
        [ $ranks -eq 1 ] || has_mpi || continue
        case $ranks in
        1) pins="--stages 1" ;;
        2) pins="--stages 2" ;;
        4) pins="--replicas 2,2" ;;
        esac
        pins="$pins --micro-batches 2 --deterministic --steps 40"
        curve "$DIR/plain" $ranks $model $pins "$@"
        rm -f "$DIR/staged"
        TASUKI_TEST_DELAY=1:10000 curve "$DIR/staged" $ranks $model $pins "$@" \
            --stage-to "$DISK" 3>&- &
        pid=$!
        wait_for grep -qs '"event":"staged"' "$DIR/staged"
        for file in "${files[@]}"; do
            dd if=/dev/zero of="$file" bs="$(stat -c %s "$file")" count=1 conv=notrunc status=none
        done
        wait $pid
        [ "$(bits "$DIR/staged" | wc -l)" -eq 40 ]
        diff <(bits "$DIR/plain") <(bits "$DIR/staged")
        diff <(tested "$DIR/plain") <(tested "$DIR/staged")
        grep -q "\"event\":\"staged\".*\"nodes\":1,\"bytes\":$size,\"copied\":$size," "$DIR/staged"
        [ -z "$(ls -A "$DISK")" ]
        for file in "${files[@]}"; do cat "$file.kept" >"$file"; done
    done
}

@test "safetensors: the same bits from the copies, on 1, 2 and 4 ranks" {
    staged_alike "$DIGITS" "$DATA" "$DIR/digits-test.safetensors" -- --data "$DATA" \
        --test "$DIR/digits-test.safetensors" --eval-every 25
}

@test "npy: the same bits from the copies, on 1, 2 and 4 ranks" {
    need_python
    python3 "$srcdir/tests/cli/make-data.py" npy "$DATA" "$DIR/arrays"
    staged_alike "$DIGITS" "$DIR"/arrays/* -- --data "$DIR/arrays"
}

@test "tokens: the same bits from the copies, on 1, 2 and 4 ranks" {
    need_python
    python3 "$srcdir/tests/cli/make-data.py" tokens "$DIR/t.bin" 400 7 header
    staged_alike "$srcdir/tests/data/model/transformer/model.onnx --global-batch 8" \
        "$DIR/t.bin" -- --data "$DIR/t.bin"
}

@test "tars: the same bits from the copies, on 1, 2 and 4 ranks" {
    for i in 0 1 2; do
        "$builddir/tests/make_tar" "$DIR/p-$i.tar" $((i * 15)) 15 10 ||
            skip "no libjpeg, no libarchive"
    done
    staged_alike "$DIGITS" "$DIR"/p-*.tar -- --data "$DIR/p-{0..2}.tar"
}

# A file of which most is a hole is read at once and written slowly enough to be interrupted.
@test "what was killed while it copied leaves no half copy in use, and goes on" {
    local pid model=$srcdir/tests/data/model/transformer/model.onnx
    local place=$DIR/disk/tasuki-$(id -u)-
    need_python
    mkdir "$DIR/disk"
    python3 "$srcdir/tests/cli/make-data.py" tokens "$DIR/t.bin" 0 7 header
    printf '\0\0\0\010' | dd of="$DIR/t.bin" bs=1 seek=16 conv=notrunc status=none
    truncate -s $((32 + 2 * (8 << 24))) "$DIR/t.bin"
    set -- "$model" --global-batch 8 --micro-batches 1 --no-shuffle --data "$DIR/t.bin"
    curve "$DIR/whole" 1 "$@" --steps 12
    curve "$DIR/part" 1 "$@" --steps 6 --checkpoint "$DIR/out"
    "$TASUKI" train --precision float64 --seed 5 -q "$@" --steps 1000000 --checkpoint \
        "$DIR/out" --resume --stage-to "$DIR/disk" 3>&- &
    pid=$!
    wait_for compgen -G "$place*-0/*.new"
    kill -KILL $pid
    wait $pid || true
    compgen -G "$place*-0/*.new"
    curve "$DIR/part" 1 "$@" --steps 12 --checkpoint "$DIR/out" --resume --stage-to "$DIR/disk"
    diff <(bits "$DIR/whole") <(bits "$DIR/part")
    [ -z "$(ls -A "$DIR/disk")" ]
}

@test "kept copies are used by the next run, a damaged or outdated one is made anew" {
    set -- $DIGITS --micro-batches 2 --steps 40 --data "$DATA" --deterministic
    curve "$DIR/plain" 1 "$@"
    run_staged() {
        TASUKI_TEST_DELAY=1:10000 curve "$DIR/log" 1 "$@" --stage-to "$DISK" 2>&1
        diff <(bits "$DIR/plain") <(bits "$DIR/log")
    }
    size=$(stat -c %s "$DATA")
    run_staged "$@" --keep-staged
    grep -q "\"event\":\"staged\".*\"copied\":$size," "$DIR/log"
    [ "$(stat -c %a "$OWN"*-0)" = 700 ]
    [ "$(stat -c %a "$OWN"*-0/*)" = 600 ]
    cmp "$DATA" "$OWN"*-0/*
    run_staged "$@" --keep-staged
    grep -q "\"event\":\"staged\".*\"bytes\":$size,\"copied\":0," "$DIR/log"
    printf X | dd of="$(echo "$OWN"*-0/*)" bs=1 seek=$((size / 2)) conv=notrunc status=none
    run run_staged "$@" --keep-staged
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"the copy is damaged: $DATA is copied anew"* ]]
    grep -q "\"event\":\"staged\".*\"bytes\":$size,\"copied\":$size," "$DIR/log"
    cmp "$DATA" "$OWN"*-0/*
    touch -d 2001-01-01 "$DATA"
    run run_staged "$@"
    [ "$status" -eq 0 ]
    [[ "$output" == *"$DATA: has changed since it was copied: it is copied anew"* ]]
    [ -z "$(ls -A "$DISK")" ]
}

# staged_on_small OPTIONS: on a disk that is mounted so, seen by this run only.
staged_on_small() {
    unshare --map-root-user --mount sh -c '
        mount -t tmpfs -o '"$1"' none "$1" && shift && exec "$@"' sh "$DISK" \
        env TASUKI_TEST_DELAY=1:10000 \
        "$TASUKI" train --precision float64 --seed 5 --log "$DIR/log" $DIGITS --steps 40 \
        --micro-batches 2 --data "$DATA" --test "$DIR/digits-test.safetensors" --stage-to "$DISK" 2>&1
}

@test "what the disk has no room for is read from where it is" {
    unshare --map-root-user --mount true || skip "this machine allows no namespaces"
    set -- $DIGITS --micro-batches 2 --steps 40 --data "$DATA" \
        --test "$DIR/digits-test.safetensors"
    curve "$DIR/plain" 1 "$@"
    run staged_on_small size=256k
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"warning: --stage-to: $OWN"*": no room for 1 of 2 files"* ]]
    # And before the first step, in numbers.
    [[ "$output" == *"warning: --stage-to: $OWN"*": 2 files are to be copied, of which "*" MB are \
not there yet, and 0."*" MB are free: what does not fit is read from where it is"* ]]
    grep -q '"event":"staged".*"bytes":93872,' "$DIR/log"
    diff <(bits "$DIR/plain") <(bits "$DIR/log")
}

# Of its inodes the file system's root, the folder and the mark of the copier have three.
@test "where the disk has no inodes for all files that is known before the first step" {
    unshare --map-root-user --mount true || skip "this machine allows no namespaces"
    curve "$DIR/plain" 1 $DIGITS --micro-batches 2 --steps 40 --data "$DATA" \
        --test "$DIR/digits-test.safetensors"
    run staged_on_small nr_inodes=4
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" =~ warning:\ --stage-to:\ .*:\ 2\ files\ are\ to\ be\ copied,\ of\ which\ 2\ are\ not\ there\ yet,\ and\ 1\ are\ free:\ what\ does\ not\ fit ]]
    [[ "$output" == *"warning: --stage-to: $OWN"*": no room for 1 of 2 files"* ]]
    diff <(bits "$DIR/plain") <(bits "$DIR/log")
    run staged_on_small nr_inodes=20
    [ "$status" -eq 0 ]
    [[ "$output" != *"are to be copied, of which"* ]]
}

# The disk is full before the file is complete: here it may have no more than 200 KiB.
@test "a disk that becomes full is said, and the run goes on with the originals" {
    set -- $DIGITS --micro-batches 2 --steps 40 --data "$DATA"
    curve "$DIR/plain" 1 "$@"
    full() {
        trap '' XFSZ
        ulimit -f 200
        TASUKI_TEST_DELAY=1:10000 curve "$DIR/log" 1 "$@" --stage-to "$DISK" 2>&1
    }
    run full "$@"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"warning: --stage-to: $OWN"*": File too large: what has not been copied"* ]]
    diff <(bits "$DIR/plain") <(bits "$DIR/log")
    [ -z "$(ls -A "$DISK")" ]
}

@test "a directory that cannot be used is one error, before anything is planned" {
    for ranks in 1 2; do
        [ $ranks -eq 1 ] || has_mpi || continue
        for place in missing digits-test.safetensors; do
            run curve "$DIR/log" $ranks $DIGITS --steps 1 --data "$DATA" \
                --stage-to "$DIR/$place"
            echo "$output"
            [ "$status" -eq 1 ]
            [ "$(grep -c "error: .*--stage-to: $DIR/$place: " <<<"$output")" -eq 1 ]
            [[ "$output" != *"plan:"* ]]
        done
    done
    run "$TASUKI" train $DIGITS --steps 1 --data "$DATA" --keep-staged
    [ "$status" -eq 2 ]
    [[ "$output" == *"--keep-staged needs --stage-to"* ]]
    TASUKI_KEEP_STAGED=yes "$TASUKI" train $DIGITS --steps 1 --data "$DATA" -q
}

@test "synthetic samples are no files, which is said" {
    run "$TASUKI" train $DIGITS --steps 1 --data synthetic:16 --stage-to "$DISK"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"warning: --stage-to: synthetic:16 has no files: there is nothing to stage"* ]]
}
