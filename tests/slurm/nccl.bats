# SPDX-License-Identifier: MIT
# Training with --comm nccl and nccl+mpi, over stand-ins of CUDA and NCCL.

load common

setup_file() {
    local reason
    reason=$(no_mpi)
    reason=${reason:-$(no_stand_in)}
    [ -n "$reason" ] || grep -q ncclReduce "$builddir/.libs/tasuki-cuda.so" ||
        reason="built without NCCL"
    export WHY_NOT_HERE=$reason LAB_DIR=$BATS_FILE_TMPDIR/lab LAB_NODES=2 LAB_CPUS=4
    start_lab "$reason"
}

teardown_file() {
    stop_lab
}

setup() {
    [ -z "$WHY_NOT_HERE" ] || skip "$WHY_NOT_HERE"
    mpi_environment
    export TASUKI_MEASURE=none
    cd "$BATS_TEST_TMPDIR"
    use_seed
    # Sanitizers want to be the first library.
    export ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0
    export TASUKI_FAKE_STRICT=1 TASUKI_FAKE_WATCH=1 TASUKI_FAKE_NVML=$PWD/machine
    export TASUKI_PKGLIBDIR=$builddir/.libs
    printf 'gpu 0000:%s:00.0\n' 1b 3d 4e 5f >machine
    fake="$builddir/tests/.libs/fake_cuda.so"
    settings="--global-batch 8 --steps 3 --lr 0.03 --optimizer momentum --threads 1 -q"
}

# $1, a network of tests/data/model, on one CPU.
network() {
    local data="$srcdir/tests/data/model/$1"
    model="$data/model.onnx --data $data/train.safetensors"
    # What a kernel takes on the stand-in says nothing.
    "$TASUKI" profile $model --optimizer momentum --batch-size 2,4 --threads 1 -q -o cost.json
    model="$model --cost cost.json $settings"
    "$TASUKI" train $model --log cpu.jsonl --stages 1 --micro-batches 1
}

# Ranks of one process are followed, too; not beside other sanitizers.
watch_threads() {
    if stand_in_is_sanitized; then
        unset TASUKI_FAKE_WATCH
    else
        fake=$builddir/tests/.libs/fake_threads.so:$fake
    fi
}

# $1 ranks, with other plans or settings.
on_gpus() {
    local n=$1
    shift
    rm -f cuda.jsonl
    TASUKI_FAKE_SEED=$TASUKI_TEST_SEED timeout 300 mpirun -n $n -x LD_PRELOAD="$fake" \
        "$TASUKI" train $model --device cuda --log cuda.jsonl "$@"
}

losses() {
    sed -nE 's/^\{"step":.*"loss":([^,]*),.*/\1/p' "$1"
}

# Float32 in another order: what a few steps may differ by.
same_curve() {
    paste <(losses cuda.jsonl) <(losses cpu.jsonl) | awk '
        function abs(x) { return x < 0 ? -x : x }
        abs($1 - $2) > 1e-5 * abs($2) { print; bad = 1 }
        END { exit bad || NR != 3 }'
}

@test "plans over ranks that speak by NCCL have the curve of one CPU" {
    network tied
    for plan in "2 --stages 2 --replicas 1,1 --micro-batches 4" \
        "4 --stages 2 --replicas 2,2 --micro-batches 2 --zero" \
        "4 --stages 2 --replicas 1,3 --micro-batches 2 --no-zero --clip-norm 100" \
        "2 --schedule interleaved --stages 4 --replicas 1,1,1,1 --micro-batches 4"; do
        echo "$plan"
        on_gpus $plan --comm nccl
        same_curve
    done
}

@test "ranks of one process, and of several, speak by NCCL as tasks do" {
    local plan="--comm nccl --stages 2 --replicas 2,2 --micro-batches 2 --zero"
    watch_threads
    network tied
    on_gpus 1 $plan --ranks-in-process 4
    same_curve
    on_gpus 2 $plan --ranks-in-process 2
    same_curve
}

@test "what CUDA reads of the environment once is there before it is first called" {
    unset TASUKI_FAKE_WATCH
    network mlp
    printf 'connections 32\nloading EAGER\ngpu 0000:%s:00.0\n' 1b 3d >machine
    on_gpus 1 --comm nccl --stages 1 --replicas 2 --micro-batches 1 --ranks-in-process auto
    same_curve
    # What the user says stays.
    sed -i s/32/8/ machine
    CUDA_DEVICE_MAX_CONNECTIONS=8 on_gpus 1 --comm nccl --stages 1 --replicas 2 --micro-batches 1 \
        --ranks-in-process auto
    same_curve
}

# Each multiprocessor that it has is one less for what computes.
@test "a message that is waited for takes few multiprocessors" {
    unset TASUKI_FAKE_WATCH
    network mlp
    printf 'blocks 4\ngpu 0000:%s:00.0\n' 1b 3d >machine
    on_gpus 2 --comm nccl --stages 2 --replicas 1,1 --micro-batches 2
    same_curve
}

@test "launches that wait for their kernels are refused, since a receive would be one" {
    network mlp
    CUDA_LAUNCH_BLOCKING=1 run on_gpus 2 --comm nccl --stages 2 --replicas 1,1 --micro-batches 2
    echo "$output"
    [ "$status" -eq 2 ]
    [ "$(grep -c "CUDA_LAUNCH_BLOCKING=1: .*--comm mpi" <<<"$output")" -eq 1 ]
    CUDA_LAUNCH_BLOCKING=0 on_gpus 2 --comm nccl --stages 2 --replicas 1,1 --micro-batches 2
    same_curve
}

# NCCL's buffers are the GPUs'.
@test "messages of 16 bits have one curve by NCCL, by MPI and in one process, and the memory that was planned" {
    local plan="--precision bf16 --stages 3 --replicas 1,1,1 --micro-batches 2" comm
    network transformer
    env -u TASUKI_FAKE_WATCH LD_PRELOAD="$fake" "$TASUKI" train $model --device cuda $plan \
        --ranks-in-process 3 --log one.jsonl
    for comm in mpi nccl; do
        on_gpus 3 $plan --comm $comm
        paste <(losses cuda.jsonl) <(losses one.jsonl)
        [ "$(losses cuda.jsonl)" = "$(losses one.jsonl)" ]
    done
    grep -oE '"memory":[0-9]+\.0,"memory_limit"' cuda.jsonl | grep -oE '[0-9]+\.' | tr -d . >planned
    grep -oE '"event":"memory","peak":\[[^]]*' cuda.jsonl | cut -d[ -f2 | tr , '\n' | diff planned -
}

@test "slices of other lengths are scattered and gathered" {
    network mlp
    on_gpus 3 --comm nccl --stages 1 --replicas 3 --micro-batches 1 --zero
    same_curve
}

@test "NCCL inside nodes and the hosts between them have the curve of one CPU" {
    [ -z "$WHY_NOT" ] || skip "$WHY_NOT"
    network tied
    for plan in "--stages 1 --replicas 4 --micro-batches 2 --no-zero" \
        "--stages 1 --replicas 4 --micro-batches 2 --zero" \
        "--stages 2 --replicas 3,1 --micro-batches 2 --no-zero"; do
        echo "$plan"
        rm -f cuda.jsonl
        srun --mpi=pmix -N2 --ntasks-per-node=2 env LD_PRELOAD="$fake" TASUKI_FAKE_SEED=$TASUKI_TEST_SEED \
            "$TASUKI" train $model --device cuda --log cuda.jsonl --comm nccl+mpi $plan
        same_curve
    done
}

# ids_go HOW COMMAND...: a training that the command starts has the curve, and the ids of all its plans go
# so. What ranks put is in the file "puts".
ids_go() {
    local how=$1
    shift
    rm -f cuda.jsonl puts
    "$@" env LD_PRELOAD="$pmix:$fake" TASUKI_PMIX_PUTS=$PWD/puts TASUKI_FAKE_SEED=$TASUKI_TEST_SEED \
        "$TASUKI" train ${model/-q/} -v --device cuda --log cuda.jsonl --comm nccl >out 2>&1 || {
        cat out
        return 1
    }
    grep 'NCCL: ids' out
    [ "$(grep -c 'NCCL: ids' out)" -eq "$(grep -c "NCCL: ids by $how$" out)" ]
    same_curve
}

# Of $1 processes the second one's ids come a byte short: one error.
short_ids_fail() {
    TASUKI_PMIX_SPOILS="1 tasuki.3 short" run ids_go PMIx mpirun -n "$1"
    echo "$output"
    [ "$status" -eq 1 ]
    [ "$(grep -c error: <<<"$output")" -eq 1 ]
}

@test "NCCL's ids go by PMIx, under srun and under mpirun" {
    pmix=$builddir/tests/.libs/record_pmix.so
    [ -e "$pmix" ] || skip "built without PMIx"
    network tied
    model+=" --stages 2 --replicas 2,2 --micro-batches 2"
    ids_go PMIx mpirun -n 4
    # The first of a team gives its id, 128 bytes and 16 that say whose it is, behind a byte.
    cat puts
    [ "$(awk '$2 == "tasuki.3" { n += ($3 - 1) / 144 } END { print n }' puts)" -eq 7 ]
    [ -z "$WHY_NOT" ] || return 0
    ids_go PMIx srun --mpi=pmix -N2 --ntasks-per-node=2
    [ "$(awk '$2 == "tasuki.3" { n += ($3 - 1) / 144 } END { print n }' puts)" -eq 7 ]
}

# So many streams in one run fake_watch.c does not follow.
@test "several connections in one run have ids of their own" {
    unset TASUKI_FAKE_WATCH
    pmix=$builddir/tests/.libs/record_pmix.so
    [ -e "$pmix" ] || skip "built without PMIx"
    network tied
    model+=" --stages 2 --trial 2"
    ids_go PMIx mpirun -n 2
    [ "$(grep -c 'NCCL: ids' out)" -gt 1 ]
    grep -q ' tasuki\.4 ' puts
}

@test "ids of several ranks of a process go by PMIx, where there are other processes" {
    watch_threads
    pmix=$builddir/tests/.libs/record_pmix.so
    [ -e "$pmix" ] || skip "built without PMIx"
    network tied
    model+=" --stages 2 --replicas 2,2 --micro-batches 2 --ranks-in-process 2"
    ids_go PMIx mpirun -n 2
    short_ids_fail 2
    [[ "$output" == *"error: rank 0 ("*"): task 1 ("*") gives "*" bytes, not what its 2 ranks do"* ]]
    model=${model%2}4
    ids_go threads
}

@test "where PMIx loses or spoils an id, or a rank cannot put it, MPI brings all" {
    local how
    pmix=$builddir/tests/.libs/record_pmix.so
    [ -e "$pmix" ] || skip "built without PMIx"
    network tied
    model+=" --stages 2 --replicas 2,2 --micro-batches 2"
    for how in lost refused kept text; do
        export TASUKI_PMIX_SPOILS="1 tasuki.3 $how"
        ids_go 'MPI, since PMIx failed: rank 1 (.*): PMIx_Get: .*' mpirun -n 4
        [ -n "$WHY_NOT" ] || ids_go 'MPI, since PMIx failed: rank 1 (n1): PMIx_Get: .*' \
            srun --mpi=pmix -N2 --ntasks-per-node=2
    done
    short_ids_fail 4
    [[ "$output" == *"NCCL: the ids of rank 1 ("*") are 143 bytes long, no multiple of 144"* ]]
}

# Messages in nodes and sums by NCCL, others by hosts, under the eyes of fake_watch.c.
@test "what links take is measured as bytes move" {
    [ -z "$WHY_NOT" ] || skip "$WHY_NOT"
    unset TASUKI_MEASURE
    network mlp
    srun --mpi=pmix -N2 --ntasks-per-node=2 env LD_PRELOAD="$fake" TASUKI_FAKE_SEED=$TASUKI_TEST_SEED \
        "$TASUKI" train ${model/-q/} -v --device cuda --comm nccl+mpi --dry-run >report 2>&1
    cat report
    grep -q '^tasuki: GPU links by NCCL and, between nodes, hosts, measured (quick)$' report
    grep -qE '^  same node +2 ' report
    grep -qE '^  same machine +1 ' report
}

@test "what NCCL cannot do is refused in one line" {
    network mlp
    run "$TASUKI" train $model --comm nccl
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"--comm nccl moves bytes between GPUs: say --device cuda, too" ]]
    run "$TASUKI" train $model --comm nccl+mpi --device cuda --deterministic
    [ "$status" -eq 2 ]
    [[ "$output" == *"--comm nccl+mpi and --deterministic"* ]]
    echo "gpu 0000:1b:00.0" >machine
    run on_gpus 2 --comm nccl --stages 2
    echo "$output"
    [ "$status" -eq 1 ]
    [ "$(grep -c error: <<<"$output")" -eq 1 ]
    [[ "$output" == *"ranks 0 and 1 share GPU 0000:1b:00.0 of "*", which NCCL refuses: --comm mpi"* ]]
}

@test "an error that NCCL finds later, and a call that fails, end all ranks with one line" {
    local error
    # So long that who is short of time asks often enough, too.
    settings=${settings/--steps 3/--steps 300}
    network mlp
    for error in "asynchronous 6 100" "ncclSend 5 4" "ncclCommInitRankConfig 3"; do
        printf 'gpu 0000:1b:00.0\ngpu 0000:3d:00.0\nerror %s\n' "$error" >machine
        run on_gpus 2 --comm nccl --stages 2 --replicas 1,1 --micro-batches 4
        echo "$output"
        [ "$status" -eq 1 ]
        [ "$(grep -c error: <<<"$output")" -eq 1 ]
        [[ "$output" == *"rank 1 "*"GPU 0000:3d:00.0: nccl"* ]]
    done
}

@test "a rank that gets no id from NCCL says so before the others wait for it" {
    network mlp
    printf 'gpu 0000:1b:00.0\ngpu 0000:3d:00.0\nerror ncclGetUniqueId 3\n' >machine
    run on_gpus 2 --comm nccl --stages 2 --replicas 1,1 --micro-batches 4
    echo "$output"
    [ "$status" -eq 1 ]
    [ "$(grep -c error: <<<"$output")" -eq 1 ]
    [[ "$output" == *"tasuki: error: rank 1 ("*"): ncclGetUniqueId: error 3"* ]]
}

@test "when a rank dies, the others do not wait for NCCL" {
    network mlp
    printf 'gpu 0000:1b:00.0\ngpu 0000:3d:00.0\nerror ncclSend -1 4\n' >machine
    run on_gpus 2 --comm nccl --stages 2 --replicas 1,1 --micro-batches 4
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" != *"nothing moved"* ]]
}

@test "a trace has what NCCL moved, and when, a row for each of its streams" {
    command -v python3 >/dev/null || skip "no python3"
    network tied
    printf 'wire * * 5e-3 1e9\n' >>machine
    on_gpus 4 --comm nccl --stages 2 --replicas 2,2 --micro-batches 2 --no-zero --trace trace.json \
        --eval-every 1 --test "$srcdir/tests/data/model/tied/train.safetensors"
    python3 "$srcdir/tests/slurm/nccl-trace.py" trace.json 5e-3 4 SEND REDUCE
    on_gpus 2 --comm nccl --stages 1 --replicas 2 --micro-batches 1 --zero --trace trace.json
    python3 "$srcdir/tests/slurm/nccl-trace.py" trace.json 5e-3 2 REDUCE STEP
    on_gpus 2 --comm nccl --schedule 2bw --stages 2 --replicas 1,1 --micro-batches 4 --trace trace.json
    python3 "$srcdir/tests/slurm/nccl-trace.py" trace.json 5e-3 2 SEND
    # What the last step leaves under way.
    sed -i s/5e-3/0.1/ machine
    network mlp
    on_gpus 2 --comm nccl --stages 2 --replicas 1,1 --micro-batches 1 --trace trace.json
    python3 "$srcdir/tests/slurm/nccl-trace.py" trace.json 0.1 2 SEND
}

# goes_wrong NAME LEAST OPTION...: wherever it is that an event is not recorded, not waited for, or waited
# for by another stream, that is seen, LEAST times or more, or changes no gradient. Of every four places one
# is tried, or with TASUKI_TEST_LONG all.
goes_wrong() {
    local name=$1 least=$2 every=4 k seen=0
    shift 2
    [ -z "${TASUKI_TEST_LONG-}" ] || every=1
    on_gpus 2 --comm nccl "$@" --dump-gradients first
    for ((k = 1 + RANDOM % every; ; k += every)); do
        TASUKI_FAKE_MUTATE="$name $k" run on_gpus 2 --comm nccl "$@" --dump-gradients other
        [[ "$output" == *"fake GPU: $name, on purpose"* ]] || break
        echo "$output" | grep '^fake GPU' >>told
        if [ "$status" -eq 99 ]; then
            seen=$((seen + 1))
        elif [ "$status" -ne 0 ] || ! cmp first other; then
            echo "$name $k: $output"
            return 1
        fi
    done
    echo "$name: up to $((k - every)), of which $seen are seen"
    [ "$seen" -ge $((every == 1 ? least : least / every / 2)) ]
}

@test "an event that is missing between NCCL and the other streams is seen" {
    local plan what
    settings=${settings/--steps 3/--steps 1}
    network mlp
    plan="--stages 2 --replicas 1,1 --micro-batches 2"
    goes_wrong skip-wait 16 $plan
    goes_wrong swap-wait 13 $plan
    goes_wrong skip-record 20 $plan
    plan="--stages 1 --replicas 2 --micro-batches 1 --no-zero"
    goes_wrong skip-wait 3 $plan
    goes_wrong swap-wait 2 $plan
    goes_wrong skip-record 4 $plan
    [ -n "${TASUKI_TEST_LONG-}" ] || return 0
    for what in "a send in stream [0-9]+ reads" "a receive in stream [0-9]+ writes" \
        "a sum in stream [0-9]+ (reads|writes)" "waits for an event that nobody recorded"; do
        echo "$what"
        grep -qE "^fake GPU: .*$what" told
    done
}

@test "sums go on while a GPU still computes gradients, by NCCL and by the hosts" {
    local demo=$srcdir/etc/demo comm
    command -v python3 >/dev/null || skip "no python3"
    unset TASUKI_FAKE_WATCH
    model="$demo/digits.onnx --data $demo/digits-train.safetensors --batchnorm-samples 2 --threads 1 -q"
    "$TASUKI" profile $model --batch-size 2,4 -o cost.json
    model="$model --cost cost.json --global-batch 8 --steps 3 --stages 1 --replicas 2"
    for comm in mpi nccl; do
        on_gpus 2 --comm $comm --micro-batches 2 --no-zero --trace $comm.json
        python3 - $comm.json <<'END'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
events = [e for e in events if e["ph"] == "X"]
end = lambda e: e["ts"] + e["dur"]
early = 0
for rank, step in ((r, s) for r in range(2) for s in range(3)):
    now = [e for e in events if (e["pid"], e["args"]["step"]) == (rank, step)]
    sums = [e for e in now if e["cat"] == "REDUCE" and rows[rank, e["tid"]] == "reduce"]
    back = {row: max(end(e) for e in now if e["cat"] == "BW" and rows[rank, e["tid"]] == row)
            for row in ("instructions", "GPU, compute")}
    assert len(sums) > 3 and min(e["ts"] for e in sums) < min(back.values()), (rank, step, sums, back)
    early += sum(end(e) < back["GPU, compute"] for e in sums)
assert early > 0, "no sum was there before the last backward had ended"
END
    done
}
