# SPDX-License-Identifier: MIT
# Several ranks as threads of one process, without a launcher: --ranks-in-process.

load data.bash

setup() {
    ranks_setup
    DEMO=$srcdir/etc/demo
    MODEL="$DEMO/digits.onnx --data $DEMO/digits-train.safetensors --batchnorm-samples 4"
    RUN="$MODEL --global-batch 32 --seed 5 --optimizer adamw --deterministic -q"
    # Nothing here needs a launcher, and no environment of one is to be seen.
    export TASUKI_PKGLIBDIR=$builddir/.libs
}

# threads N ARGUMENTS...
threads() {
    local n=$1
    shift
    "$TASUKI" train $RUN --ranks-in-process "$n" "$@"
}

@test "four ranks in one process follow the curve of one rank, whatever the plan" {
    export TASUKI_PKGLIBDIR=/nonexistent
    threads 1 --precision float64 --steps 6 --log "$DIR/1"
    for plan in "--stages 4" "--stages 2 --replicas 2,2" "--replicas 4" "--replicas 4 --zero" \
                "--pipelines 2 --stages 2" "--stages 4 --schedule zb-v"; do
        echo "$plan"
        threads 4 --precision float64 --steps 6 $plan --log "$DIR/4"
        same_curve "$DIR/1" "$DIR/4" 6
    done
}

@test "ranks in one process give the bits of as many processes" {
    has_mpi || skip "no MPI"
    measured "$DIR/float32" --optimizer adamw
    measured "$DIR/float64" --optimizer adamw --precision float64
    for plan in "--stages 4 --cost $DIR/float32" "--replicas 4 --zero --cost $DIR/float32" \
        "--replicas 2,2 --precision float64 --cost $DIR/float64"; do
        threads 4 --steps 5 $plan --log "$DIR/threads"
        mpirun -n 4 "$TASUKI" train $RUN --steps 5 $plan --log "$DIR/processes"
        [ "$(exact "$DIR/threads" | wc -l)" -eq 5 ]
        diff <(exact "$DIR/threads") <(exact "$DIR/processes")
    done
}

@test "a checkpoint of four ranks in one process is resumed by one and by two" {
    threads 1 --precision float64 --steps 6 --log "$DIR/whole"
    threads 4 --precision float64 --steps 3 --stages 2 --replicas 2,2 --zero \
        --checkpoint "$DIR/out" --log "$DIR/1"
    [ "$(ls "$DIR"/out/step-00000003/*.safetensors | wc -l)" -gt 1 ]
    cp -r "$DIR/out" "$DIR/out2"
    cp "$DIR/1" "$DIR/2"
    threads 1 --precision float64 --steps 6 --checkpoint "$DIR/out" --resume --log "$DIR/1"
    same_curve "$DIR/whole" "$DIR/1" 6
    threads 2 --precision float64 --steps 6 --stages 2 --checkpoint "$DIR/out2" --resume \
        --log "$DIR/2"
    same_curve "$DIR/whole" "$DIR/2" 6
}

@test "files of a checkpoint follow the umask, whichever thread writes them" {
    (umask 027 && threads 4 --steps 1 --stages 4 --checkpoint "$DIR/out")
    [ -z "$(find "$DIR/out" -type f ! -perm 640)" ]
    [ "$(find "$DIR/out" -type f | wc -l)" -gt 3 ]
}

@test "ranks share the cores, the planner knows them all, and the first one speaks" {
    unset TASUKI_THREADS
    run "$TASUKI" train $MODEL --global-batch 32 --steps 1 --ranks-in-process 3 --log "$DIR/log"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"ranks of 3"* ]]
    [[ "$output" != *"tasuki: rank "* ]]
    threads=$(($(nproc) / 3))
    grep -q ", $((threads > 0 ? threads : 1)) thread" "$DIR/log"
    grep -q '"library": *"no MPI"' "$DIR/log"
}

# Sets of CPUs that threads of a run of two ranks may run on, but for those of all that this shell may.
bound_to() {
    local all pid
    all=$(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status)
    rm -f "$DIR/log"
    TASUKI_TEST_DELAY=1:30000 "$@" "$TASUKI" train $RUN --steps 1000000 --ranks-in-process 2 \
        --stages 2 --log "$DIR/log" 3>&- &
    pid=$!
    for _ in $(seq 600); do
        grep -q '^{"step":2,' "$DIR/log" 2>/dev/null && break
        kill -0 $pid || break
        sleep 0.1
    done
    cat /proc/$pid/task/*/status | sed -n 's/^Cpus_allowed_list:.//p' | sort | uniq -c |
        awk -v all="$all" '$2 != all { print $2 }'
    kill -KILL $pid
    wait $pid || true
}

@test "ranks in one process have cores of their own" {
    # Of the CPUs that this test may use.
    [ "$(lscpu -p=CPU,CORE | grep -v '^#' | awk -F, -v may="$(python3 -c 'import os
print(*os.sched_getaffinity(0))')" 'BEGIN { split(may, list, " "); for (i in list) here[list[i]] = 1 }
        here[$1] { print $2 }' | sort -u | wc -l)" -ge 2 ] ||
        skip "this machine has one core"
    unset SLURM_CPUS_ON_NODE
    bound_to env -u OMP_PROC_BIND -u OMP_PLACES >"$DIR/sets"
    cat "$DIR/sets"
    [ "$(wc -l <"$DIR/sets")" -eq 2 ]
    # None is in both.
    [ -z "$(while IFS=- read -r first last; do seq $first ${last:-$first}; done < <(tr , '\n' <"$DIR/sets") |
        sort | uniq -d)" ]
    bound_to env OMP_PROC_BIND=false >"$DIR/sets"
    cat "$DIR/sets"
    [ ! -s "$DIR/sets" ]
}

@test "auto is one rank where kernels run on CPUs" {
    threads auto --steps 2 --log "$DIR/auto"
    threads 1 --steps 2 --log "$DIR/1"
    diff <(exact "$DIR/1") <(exact "$DIR/auto")
}

@test "the number of ranks is checked, and printed as a job file" {
    for bad in 0 -1 two 1x 5000 ""; do
        run threads "$bad" --steps 1
        one_error 2 "--ranks-in-process: expected an integer from 1 to 4096, got \"$bad\""
        [[ "$output" == *"; or say auto"* ]]
    done
    run "$TASUKI" train $MODEL --ranks-in-process 3 --print-config
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"ranks-in-process = 3"* ]]
}

@test "a plan that needs more ranks says how to have them" {
    run threads 2 --steps 1 --stages 4
    one_error 2 "as one process with --ranks-in-process 4"
    threads 4 --steps 1 --stages 4
}

@test "nodes of a job on which no rank runs are warned of, whatever the scheduler" {
    printf '%s\n' n1 n1 n2 n2 n3 n3 >nodes
    PBS_JOBID=7.server PBS_NODEFILE=$PWD/nodes run threads 2 --steps 1
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"warning: 2 of the job's 3 nodes have no rank (PBS_NODEFILE=$PWD/nodes); use \
mpirun -n 6 --map-by ppr:2:node tasuki ..."* ]]
    PJM_JOBID=7 PJM_O_NODEINF=$PWD/nodes run threads 2 --steps 1
    [[ "$output" == *"(PJM_O_NODEINF="* ]]
    echo 'n1 4 all.q@n1 UNDEFINED' >hosts
    SGE_TASK_ID=undefined JOB_ID=7 PE_HOSTFILE=$PWD/hosts run threads 2 --steps 1
    [ "$status" -eq 0 ]
    [[ "$output" != *"warning"* ]]
    SGE_TASK_ID=undefined JOB_ID=7 PE_HOSTFILE=/nonexistent run threads 2 --steps 1
    [ "$status" -eq 0 ]
    [[ "$output" == *"the nodes of this job are not known: PE_HOSTFILE=/nonexistent: No such file"* ]]
}

@test "more ranks on a node than the job has there are an error, unless mpirun was told so" {
    has_mpi || skip "no MPI"
    local host=$(hostname)
    unset SLURM_JOB_ID
    printf '%s\n' "$host" "$host" n2 n2 >nodes
    export PBS_JOBID=7.server PBS_NODEFILE=$PWD/nodes
    # An MPI that does not know of the job: three ranks on one node.
    echo "localhost slots=3" >slots
    run mpirun --hostfile slots -n 3 "$TASUKI" train $RUN --steps 1 --stages 1
    one_error 2 "3 ranks are on $host, where this job of PBS has 2 slots (PBS_NODEFILE=$PWD/nodes); \
use mpirun -n 4 --map-by ppr:2:node tasuki ..., with --hostfile where this MPI does not know the \
scheduler; where more are meant, mpirun --oversubscribe, or TASUKI_OVERSUBSCRIBE=1"
    TASUKI_OVERSUBSCRIBE=1 mpirun --hostfile slots -n 3 "$TASUKI" train $RUN --steps 1 --stages 1
    # What the hostfile says is mpirun's to know.
    echo "localhost slots=1" >slots
    mpirun --hostfile slots --oversubscribe -n 3 "$TASUKI" train $RUN --steps 1 --stages 1
    # Threads of one process take one slot.
    threads 3 --steps 1 --stages 1
}

@test "topo says what the allocation of another scheduler is" {
    printf '%s\n' n1 n1 n2 n2 >nodes
    unset SLURM_JOB_ID
    PBS_JOBID=7.server PBS_NODEFILE=$PWD/nodes run "$TASUKI" topo
    [ "$status" -eq 0 ]
    [ "${lines[0]}" = "PBS job 7.server: 2 nodes, 4 slots" ]
    PJM_JOBID=8 PJM_O_NODEINF=$PWD/nodes PJM_PROC_BY_NODE=4 run "$TASUKI" topo
    [ "${lines[0]}" = "PJM job 8: 2 nodes, 8 slots" ]
    echo 'n1 4 all.q@n1 UNDEFINED' >hosts
    SGE_TASK_ID=undefined JOB_ID=9 PE_HOSTFILE=$PWD/hosts run "$TASUKI" topo
    [ "${lines[0]}" = "Grid Engine job 9: 1 node, 4 slots" ]
    PBS_JOBID=7.server PBS_NODEFILE=/nonexistent run "$TASUKI" topo
    [ "$status" -eq 0 ]
    [[ "$output" == *"the nodes of this job are not known: PBS_NODEFILE=/nonexistent: No such file"* ]]
}

# All that the scheduler sets is there, and no more of it.
@test "in environments that were recorded of jobs, topo and train know their nodes and slots" {
    local job words title nodes n=0
    for job in "$srcdir"/tests/data/{pbs,pjm,sge}/*; do
        mapfile -t words < <(sed -E "s,^(PBS_NODEFILE|PJM_O_NODEINF|PE_HOSTFILE)=.*,\1=$job/nodes,;
            /^TMPDIR=/d" "$job/environment")
        title=$(sed '/^#/d' "$job/expected" | head -n 1)
        nodes=$(sed -E 's/.*: ([0-9]+) nodes?.*/\1/' <<<"$title")
        run env -u SLURM_JOB_ID "${words[@]}" "$TASUKI" topo
        echo "${job#"$srcdir"/}: ${lines[0]}"
        [ "$status" -eq 0 ]
        [ "${lines[0]}" = "$title" ]
        run env -u SLURM_JOB_ID "${words[@]}" "$TASUKI" train $RUN --ranks-in-process 2 --steps 1
        echo "$output"
        [ "$status" -eq 0 ]
        if [ "$nodes" -gt 1 ]; then
            [[ "$output" == *"warning: $((nodes - 1)) of the job's $nodes nodes have no rank ("*"=$job/nodes); \
use mpirun -n "* ]]
        else
            [[ "$output" != *"have no rank"* ]]
        fi
        n=$((n + 1))
    done
    [ $n -ge 7 ]
}

@test "what all ranks find wrong is said once" {
    cp "$DEMO/digits-train.safetensors" "$DIR/data.safetensors"
    truncate -s 5000 "$DIR/data.safetensors"
    run "$TASUKI" train "$DEMO/digits.onnx" --data "$DIR/data.safetensors" --global-batch 32 \
        --steps 1 --ranks-in-process 4 --stages 4
    one_error 1 "data.safetensors"
    run threads 4 --steps 1 --stages 4 --memory 1000
    one_error 1 "memory"
    run threads 4 --steps 1 --checkpoint "$DIR/data.safetensors/out"
    one_error 1 "data.safetensors/out"
}

@test "a rank that fails by itself ends all others, and it alone says why" {
    need_python
    python3 "$srcdir/tests/cli/make-data.py" tokens "$DIR/t.bin" 400 7 header
    printf '\377\377' | dd of="$DIR/t.bin" bs=1 seek=$((32 + 2 * 200)) conv=notrunc status=none
    for plan in "--stages 4" "--replicas 4" "--replicas 2,2"; do
        run timeout 60 "$TASUKI" train "$srcdir/tests/data/model/transformer/model.onnx" -q \
            --global-batch 8 --epochs 1 --data "$DIR/t.bin" --ranks-in-process 4 $plan
        one_error 1 "t.bin: token 200 is 65535, the header says a vocabulary of 7"
        [[ "$output" =~ error:\ rank\ [0-3]\ \( ]]
    done
}

# The ranks sleep in instructions, the others wait for them.
@test "that nothing moves is said before anybody gives up, and that it moves again" {
    export TASUKI_TEST_DELAY=3:9000000
    run timeout 120 "$TASUKI" train $RUN --ranks-in-process 3 --stages 3 --steps 1 \
        --micro-batches 2 --warn-after 2 --log "$DIR/log"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"warning: nothing has moved for "*" seconds (--warn-after); where the ranks are:"* ]]
    grep -qE 'warning: ranks? [0-2](, [0-2])?: step 1, stage [0-2], [A-Z]+' <<<"$output"
    grep -qE 'warning: it moves again, after [0-9]+ seconds$' <<<"$output"
    grep -E '^\{"event":"(standstill|moves)"' "$DIR/log" | head -2 | tail -1 | grep -q '"moves"'
    grep -qE '^\{"event":"standstill","seconds":[2-9][0-9.]*,"ranks":\[\{"ranks":\[[0-2]' "$DIR/log"
}

@test "a signal ends the step on all ranks, writes a checkpoint and exits 75" {
    "$TASUKI" train $RUN --precision float64 --steps 1000000 --ranks-in-process 4 --stages 2 \
        --replicas 2,2 --checkpoint "$DIR/out" --log "$DIR/log" &
    pid=$!
    for _ in $(seq 3000); do
        grep -q '^{"step"' "$DIR/log" 2>/dev/null && break
        kill -0 $pid || break
        sleep 0.1
    done
    kill -TERM $pid
    code=0
    wait $pid || code=$?
    [ "$code" -eq 75 ]
    done=$(sed -E 's/^step-0*//' "$DIR/out/latest")
    [ "$(exact "$DIR/log" | wc -l)" -eq "$done" ]
    threads 4 --precision float64 --steps $((done + 2)) --stages 4 --checkpoint "$DIR/out" \
        --resume --log "$DIR/log"
    threads 1 --precision float64 --steps $((done + 2)) --log "$DIR/whole"
    same_curve "$DIR/whole" "$DIR/log" $((done + 2))
}

@test "ranks in one process read from copies of the data on a disk of the node" {
    # Steps that take a while: nobody waits for a copy, and a disk may take long to sync it.
    disk=$(mktemp -d -p /dev/shm || mktemp -d)
    TASUKI_TEST_DELAY=1:10000 threads 4 --steps 40 --stages 2 --replicas 2,2 \
        --stage-to "$disk" --keep-staged --log "$DIR/4"
    mv "$disk" "$DIR/fast"
    [ "$(exact "$DIR/4" | wc -l)" -eq 40 ]
    grep -q '"event":"staged"' "$DIR/4"
    [ -n "$(find "$DIR/fast" -type f -size +100k)" ]
}

@test "the trace has a row for each rank" {
    threads 3 --steps 2 --stages 3 --trace "$DIR/trace"
    for rank in 0 1 2; do
        grep -q "\"pid\": *$rank" "$DIR/trace"
    done
}
