# SPDX-License-Identifier: MIT
# What streams and events order, on a stand-in of the CUDA runtime that follows it by vector clocks
# (tests/fake_watch.c), and makes mistakes on purpose (tests/fake_mutate.c).

load common

setup() {
    local mlp=$srcdir/tests/data/model/mlp
    ! stand_in_is_sanitized || skip "built with other sanitizers"
    use_stand_in
    export TASUKI_FAKE_WATCH=1
    printf 'gpu 0000:1b:00.0\n' >machine
    model="$mlp/model.onnx --data $mlp/train.safetensors --loss cross-entropy:logits,label"
    # What a kernel takes on the stand-in says nothing.
    [ -e ../cost.json ] || "$TASUKI" profile $model --batch-size 6,12,24 --threads 1 -q \
        -o ../cost.json
    model="$model --cost ../cost.json --global-batch 24 --steps 3 --threads 1 -q"
    preload=$builddir/tests/.libs/fake_cuda.so
    # Two stages of one rank: messages, and all streams, in one process.
    stages="--schedule interleaved --stages 2 --replicas 1,1 --micro-batches 4"
}

# go SEED OPTION...
go() {
    local seed=$1
    shift
    rm -f log
    TASUKI_FAKE_SEED=$seed LD_PRELOAD="$preload" \
        timeout -s KILL 300 "$TASUKI" train $model --device cuda --log log "$@"
}

# sees NAME K PATTERN OPTION...: of the K-th call that could go wrong so, or one of the next, the
# error is seen and named. Not each is one: what a call orders another one may order, too; and which
# error of several comes first is drawn, so all are tried some times.
sees() {
    local name=$1 first=$2 pattern=$3 k
    shift 3
    for k in $(for turn in 1 2 3 4; do seq $first $((first + 15)); done); do
        TASUKI_FAKE_MUTATE="$name $k" run go $RANDOM "$@"
        [ "$status" -eq 0 ] || echo "$name $k: $output"
        [[ ! "$output" =~ $pattern ]] || return 0
    done
    echo "$name: not seen from $first on"
    return 1
}

@test "what is trained in any order is ordered, and is the same" {
    local seed
    go 0 $stages
    mv log first
    for seed in 1 2 3 $(for i in {1..17}; do echo $RANDOM; done); do
        echo "seed $seed"
        go $seed $stages
        diff <(sed -nE 's/^\{"step".*"loss":([^,]*),.*/\1/p' first) \
            <(sed -nE 's/^\{"step".*"loss":([^,]*),.*/\1/p' log)
    done
}

@test "other ways to train are ordered" {
    local options
    for options in "--stages 1 --micro-batches 2" "$stages --recompute full" \
        "$stages --no-cuda-graphs" "$stages --optimizer lamb --clip-norm 1" \
        "$stages --precision fp16 --loss-scale 67108864" \
        "--schedule zb-v --stages 2 --replicas 1,1 --micro-batches 4 --ema 0.9 --eval-every 1 --test
        $srcdir/tests/data/model/mlp/train.safetensors"; do
        echo "$options"
        go $RANDOM $options
    done
}

# Ranks that are threads of a process, each with a clock of its own.
with_ranks() {
    printf 'gpu 0000:%s:00.0\n' 1b 3d 4e 5f >machine
    preload=$builddir/tests/.libs/fake_threads.so:$preload
    model+=" --ranks-in-process $1"
    export TASUKI_MEASURE=none
}

@test "what ranks of one process do with each other's memory is ordered" {
    local options comms="mpi"
    ! grep -q ncclReduce "$builddir/.libs/tasuki-cuda.so" || comms="mpi nccl"
    with_ranks 2
    for comm in $comms; do
        for options in "--stages 2 --replicas 1,1 --micro-batches 4" \
            "--stages 1 --replicas 2 --micro-batches 2 --no-zero" \
            "--stages 1 --replicas 2 --micro-batches 2 --zero --optimizer lamb" \
            "--schedule interleaved --stages 4 --replicas 1,1,1,1 --micro-batches 4"; do
            echo "$options --comm $comm"
            go $RANDOM $options --comm $comm
        done
    done
    model=${model/process 2/process 4}
    go $RANDOM --stages 2 --replicas 2,2 --micro-batches 2
}

@test "what a rank does with another one's memory too early is seen" {
    with_ranks 2
    sees skip-give 141 "thread [0-9]+ (writes|reads), and nothing orders the two" --stages 2 \
        --replicas 1,1 --micro-batches 4
    sees skip-take 141 "(thread [0-9]+|stream [0-9]+) (writes|reads) what (thread|the host)" --stages 2 \
        --replicas 1,1 --micro-batches 4
    sees skip-take 141 "the host (in thread [0-9]+ )?reads what (the host|thread [0-9]+) writes, and" \
        --stages 1 --replicas 2 --micro-batches 2 --no-zero
    # Each rank's own streams are watched as ever.
    sees hasty-query 12 "the host( in thread [0-9]+)? reads what stream" --stages 2 --replicas 1,1 \
        --micro-batches 4
}

@test "an event that is missing, or of the wrong stream, is seen" {
    local stream="stream [0-9]+"
    sees skip-wait 12 "a copy in $stream writes what $stream writes, and nothing" $stages
    sees skip-wait 12 "kernel_[A-Za-z_]+ in $stream reads what" $stages
    # The slot is used anew too early.
    sees skip-wait 12 "what ends a use in $stream writes what $stream reads, and" $stages
    # A message is packed before it is computed.
    sees skip-wait 17 "a copy in $stream reads what" $stages
    sees swap-wait 12 "what $stream (reads|writes), and nothing orders" $stages
    sees skip-record 23 "waits for an event that nobody recorded" $stages
    sees skip-record 28 "kernel_[A-Za-z_]+ in $stream reads what" $stages
    sees swap-record 22 "what $stream (reads|writes), and nothing orders" $stages
}

@test "a host that does not wait is seen" {
    # Behind those of the first parameters, it posts what is not packed, or has a buffer filled that is still
    # unpacked.
    sees hasty-query 12 "the host reads what" $stages
    sees hasty-query 12 "reads what the host writes, and|the host writes what stream" $stages
    sees hasty-query 12 "the host reads what|writes what the host reads" --stages 1 --micro-batches 2
    sees skip-sync 8 "the host writes what stream" --stages 1 --micro-batches 2 --data-threads 0
}

@test "work that is missing, or in the wrong stream, is seen" {
    sees skip-copy 24 "kernel_[A-Za-z_]+ in stream [0-9]+ reads what nobody wrote" $stages
    sees skip-copy 24 "the host reads what nobody wrote" $stages
    sees short-copy 24 "reads what nobody wrote" $stages
    sees swap-copy 24 "and nothing orders the two" $stages
    sees skip-kernel 8 "reads what nobody wrote" $stages
    sees swap-kernel 8 "and nothing orders the two|reads what nobody wrote" $stages
    sees skip-graph 3 "reads what nobody wrote" $stages
    sees swap-graph 3 "and nothing orders the two|reads what nobody wrote" $stages
}

# leaves_out NAME LEAST OPTION...: whichever call it is that is not made, that is seen, LEAST times or
# more, or makes no difference.
leaves_out() {
    local name=$1 least=$2 k seen=0
    shift 2
    go 0 "$@"
    mv log first
    for ((k = 1; ; k++)); do
        TASUKI_FAKE_MUTATE="$name $k" run go 0 "$@"
        [[ "$output" == *"fake GPU: $name, on purpose"* ]] || break
        if [ "$status" -eq 99 ]; then
            seen=$((seen + 1))
        elif [ "$status" -ne 0 ] || [ "$(losses log)" != "$(losses first)" ]; then
            echo "$name $k: $output"
            return 1
        fi
    done
    echo "$name: $((k - 1)), of which $seen are seen"
    [ "$seen" -ge "$least" ]
}

# Norms and what the guard sums up are of no consequence here, and memory is zeroed twice: the rest is
# seen, in-place kernels, too.
@test "whatever one call is left out, that is seen, or makes no difference" {
    local plan="${stages/batches 4/batches 2} --optimizer momentum"
    leaves_out skip-kernel 40 $plan
    leaves_out skip-call 0 $plan
    leaves_out skip-copy 50 $plan
    leaves_out skip-graph 15 $plan
    leaves_out skip-set 0 $plan
    # What has begun to be is not there, even where nothing says so.
    leaves_out skip-launch 4 --stages 1 --micro-batches 1
}

@test "what is freed twice or never is seen" {
    sees free-twice 1 "frees what is not allocated" $stages
    sees keep-pinned 1 "ends with memory that it never freed" $stages
    sees keep-graph 1 "ends with graphs that it never destroyed" $stages
    sees keep-stream 1 "ends with streams that it never destroyed" $stages
}

@test "what a capture does not allow ends it" {
    local name
    for name in sync alloc pageable legacy; do
        sees $name-in-capture 1 "GPU 0000:1b:00.0: cudaStreamEndCapture: operation failed" $stages
    done
}
