# SPDX-License-Identifier: MIT
# What the tests under mpirun and srun share.

builddir=${builddir:-$PWD}
srcdir=${srcdir:-$BATS_TEST_DIRNAME/../..}
TASUKI=${TASUKI:-$builddir/tasuki}
export TASUKI_PKGLIBDIR=${TASUKI_PKGLIBDIR:-$builddir/.libs}
comm_check=$builddir/tests/comm_check
lab=$srcdir/tests/slurm/lab
starve=$srcdir/tests/slurm/starve

# Why ranks cannot be started here, or nothing.
no_mpi() {
    command -v mpirun >/dev/null || { echo "mpirun is not installed"; return; }
    [ -e "$TASUKI_PKGLIBDIR/tasuki-mpi.so" ] || { echo "built without MPI"; return; }
    [ -x "$comm_check" ] || echo "$comm_check is not built"
}

# Why the stand-in of the CUDA runtime cannot be used here, or nothing.
no_stand_in() {
    [ -e "$builddir/.libs/tasuki-cuda.so" ] || { echo "built without CUDA"; return; }
    [ -e "$builddir/tests/.libs/fake_cuda.so" ] || echo "fake_cuda.so is not built"
}

# Is it built with sanitizers of its own? Then it cannot follow what kernels touch.
stand_in_is_sanitized() {
    nm "$builddir/tests/.libs/fake_cuda.so" 2>/dev/null | grep -q __asan_
}

# What is drawn is drawn again by TASUKI_TEST_SEED.
use_seed() {
    export TASUKI_TEST_SEED=${TASUKI_TEST_SEED:-$RANDOM}
    RANDOM=$TASUKI_TEST_SEED
    echo "TASUKI_TEST_SEED=$TASUKI_TEST_SEED"
}

# A folder of the test's own, whose file "machine" says which GPUs the stand-in has.
use_stand_in() {
    local reason
    reason=$(no_stand_in)
    [ -z "$reason" ] || skip "$reason"
    cd "$BATS_TEST_TMPDIR"
    # Sanitizers want to be the first library.
    export ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0
    # What a kernel takes on the stand-in says nothing, and takes long.
    export TASUKI_TEST_HASTE=1
    export TASUKI_FAKE_STRICT=1 TASUKI_FAKE_NVML=$PWD/machine TASUKI_PKGLIBDIR=$builddir/.libs
    use_seed
}

# What runs in the background as "$job", and says things in "out", has ended with code $1.
ends_with() {
    local code=0
    wait $job || code=$?
    cat out
    [ "$code" -eq "$1" ]
}

# Bring the lab up, unless there is a reason not to, $1 or the lab's own: then tests are skipped.
start_lab() {
    export WHY_NOT=$1
    [ -n "$WHY_NOT" ] || WHY_NOT=$("$lab" why-not) || WHY_NOT=
    [ -n "$WHY_NOT" ] || "$lab" up
}

# The same where libslurm is asked, too.
start_slurm_lab() {
    local reason
    reason=$(no_mpi)
    [ -e "$TASUKI_PKGLIBDIR/tasuki-slurm.so" ] || reason=${reason:-built without libslurm}
    start_lab "${reason:-${1:-}}"
}

stop_lab() {
    [ -n "$WHY_NOT" ] || "$lab" down
}

# A test in the lab begins, in its own folder; "training" is the digits, in float64, and what is given.
begin_in_lab() {
    [ -z "$WHY_NOT" ] || skip "$WHY_NOT"
    mpi_environment
    # srun.bats and survive.bats have runs that measure links.
    export TASUKI_MEASURE=none
    cd "$BATS_TEST_TMPDIR"
    demo=$srcdir/etc/demo
    training=("$demo/digits.onnx" --data "$demo/digits-train.safetensors" --global-batch 32
        --batchnorm-samples 8 --precision float64 --seed 5 "$@")
}

# A condition, within two minutes, or so many seconds as PATIENCE has.
wait_until() {
    local end=$((SECONDS + ${PATIENCE:-120}))
    until "$@"; do
        [ $SECONDS -lt $end ] || { what_is_there; return 1; }
        sleep 0.1
    done
}

# After that: the jobs, nodes, and what was said by tests and daemons.
what_is_there() {
    local file
    "$lab" run scontrol show job
    "$lab" run sinfo -N
    for file in out run/job-*.out "$LAB_DIR"/log/slurm*.log; do
        [ ! -e "$file" ] || { echo "--- $file"; tail -n 60 "$file"; }
    done
}

has_line() {
    grep -qs "$2" "$1"
}

all_idle() {
    [ "$("$lab" run sinfo -h -N -p main -o %T | grep -cx idle)" = "$LAB_NODES" ]
}

submit() {
    "$lab" run timeout 60 "$TASUKI" submit "$@"
}

# By the job's state, of which squeue shows some minutes what is over.
in_state() {
    [ "$("$lab" run squeue -h -t all -j "$1" -o %T)" = "$2" ]
}

ended() {
    in_state "$1" COMPLETED || in_state "$1" FAILED || in_state "$1" CANCELLED
}

no_steps() {
    ! "$lab" run pgrep -f '^slurmstepd: \[' >/dev/null
}

# A requeued job waits two minutes, in which the processes of its last start go away. Here it
# waits for these, and two seconds: slurmd takes a job that starts in the second in which it was
# killed for the killed one ("already killed, do not launch batch job").
let_go_on() {
    wait_until in_state "$1" PENDING
    wait_until no_steps
    wait_until "$lab" run scontrol update jobid="$1" StartTime=now+2
}

# How often Slurm has started it again.
restarts() {
    "$lab" run scontrol show job "$1" | sed -n 's/.* Restarts=\([0-9]*\) .*/\1/p'
}

# On the login node of the lab.
srun() {
    "$lab" run timeout 300 srun "$@"
}

# Few cores, as root in a container: Open MPI 4 and 5. MPI libraries leak by design.
mpi_environment() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 \
        PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe ASAN_OPTIONS=detect_leaks=0
    # Of its own: two mpiruns that start and end at once fall over each other's folder in /tmp.
    export OMPI_MCA_orte_tmpdir_base=$BATS_TEST_TMPDIR \
        PRTE_MCA_prte_tmpdir_base=$BATS_TEST_TMPDIR
}

# All checks of comm_check in $output passed, over so many ranks, by MPI or $2.
all_passed() {
    local check
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"$1 ranks, ${2:-mpi}, "* ]]
    for check in exchange fence broadcast agreement messages sums introduction; do
        [[ "$output" == *"$check: ok"* ]]
    done
}

# Reports of the log $2 come at multiples of $1 steps, each about so many; and stragglers with them.
reports_of_steps() {
    grep -E '^\{"event":"(ranks|stragglers)"' "$2" | awk -F '[:,]' -v n="$1" '
        $4 % n || $6 != n { bad = 1 }
        /"ranks","step"/ { bad = bad || (last && $4 != last + n); last = $4 }
        /"stragglers","step"/ {
            bad = bad || $4 != last ||
                  !/{"rank":[0-9]+,"node":"[^"]+","stage":[0-9]+,"factor":[0-9.]+/
        }
        END { exit bad || last < 3 * n }'
}

# What where.c writes of a rank at work, as an extended expression; and "rank 1 (host) does not answer …"
# of one that is stopped: silent_rank RANK HOST STAGE.
at_work='(F|B|W|BW|SEND|RECV|REDUCE|STEP)( of micro-batch [0-9]+)?: '
at_work="step [0-9]+, stage [0-9]+, ($at_work|end of step: )"
at_work+='(computes|(sends to|receives from) rank [0-9]+|is in an? (all-reduce|reduce-scatter|all-gather))'
silent_rank() {
    echo "rank $1 \($2\) does not answer; last heard of [0-9]+ seconds ago, in" \
        "${at_work/stage \[0-9\]+/stage $3}"
}

losses() {
    sed -n '/^{"step"/s/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$1"
}

# The steps after the last checkpoint are done twice: the later ones count.
last_of_each_step() {
    tac "$1" | awk -F '[:,]' '/^{"step"/ && !seen[$2]++' | tac
}

# Numbers, line by line, within 1e-10, or $3, of their size.
same_losses() {
    paste <(losses "$1") <(losses "$2") | awk -v bound="${3:-1e-10}" '
        NF != 2 { bad = 1 }
        { d = $1 - $2; if (d < 0) d = -d; if (d > bound * ($1 < 0 ? -$1 : $1)) bad = 1 }
        END { exit bad || NR < 6 }'
}
