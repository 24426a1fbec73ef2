# SPDX-License-Identifier: MIT
# Runs over each data format: the same curve on any number of ranks, and after a resume.

ranks_setup() {
    DIR=$BATS_TEST_TMPDIR
    export TASUKI_THREADS=1 TASUKI_MEASURE=none
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
    export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    export OMPI_MCA_hwloc_base_binding_policy=none
    export OMPI_MCA_orte_tmpdir_base=$DIR PRTE_MCA_prte_tmpdir_base=$DIR
}

# own_cache: costs that other tests have measured are not for this one, nor the other way round.
own_cache() {
    export TASUKI_CACHE_DIR=$DIR/cache
}

# measured FILE ARGUMENTS...: what the demo's network costs, so that runs that are to be alike have
# the same plan: on a busy machine they would measure anew.
measured() {
    local file=$1
    shift
    [ -e "$file" ] || "$TASUKI" profile "$srcdir/etc/demo/digits.onnx" \
        --batch-size 1,2,4,8,16,32 --threads 1 -q -o "$file" "$@"
}

need_python() {
    command -v python3 >/dev/null || skip "no python3"
}

has_mpi() {
    command -v mpirun >/dev/null && [ -f "$builddir/.libs/tasuki-mpi.so" ]
}

# The losses of a log, one a line, rounded as far as every plan agrees in float64.
losses() {
    grep '^{"step"' "$1" | sed -E 's/.*"loss":([^,]*),.*/\1/' | awk '{ printf "%.9e\n", $1 }'
}

# The same of its evaluations, with their steps and accuracies.
tested() {
    sed -nE 's/.*"event":"evaluation","step":([0-9]*),"loss":([^,]*),.*"accuracy":([^,}]*).*/\1 \2 \3/p' \
        "$1" | awk '{ printf "%d %.9e %.9e\n", $1, $2, $3 }'
}

# curve LOG RANKS ARGUMENTS...
curve() {
    local log=$1 ranks=$2 launcher=
    shift 2
    [ "$ranks" -eq 1 ] || launcher="mpirun -n $ranks"
    $launcher "$TASUKI" train --precision float64 --seed 5 --log "$log" -q "$@"
}

# same_anywhere STEPS ARGUMENTS...: 2 and 4 ranks as 1, and stopped in mid-epoch and resumed.
same_anywhere() {
    local steps=$1 half=$(($1 / 2))
    shift
    curve "$DIR/1" 1 --steps "$steps" "$@"
    [ "$(losses "$DIR/1" | wc -l)" -eq "$steps" ]
    rm -rf "$DIR/out"
    curve "$DIR/part" 1 --steps "$half" --checkpoint "$DIR/out" "$@"
    if has_mpi; then
        curve "$DIR/2" 2 --steps "$steps" --stages 2 "$@"
        curve "$DIR/4" 4 --steps "$steps" --replicas 2,2 "$@"
        diff <(losses "$DIR/1") <(losses "$DIR/2")
        diff <(losses "$DIR/1") <(losses "$DIR/4")
        curve "$DIR/part" 2 --steps "$steps" --stages 1 --replicas 2 --checkpoint "$DIR/out" \
            --resume "$@"
    else
        curve "$DIR/part" 1 --steps "$steps" --checkpoint "$DIR/out" --resume "$@"
    fi
    diff <(losses "$DIR/1") <(losses "$DIR/part")
}

exact() {
    sed -nE 's/^\{"step".*"loss":([^,]*),.*/\1/p' "$1"
}

# same_curve LOG LOG STEPS: to 1e-10.
same_curve() {
    [ "$(exact "$1" | wc -l)" -eq "$3" ]
    [ "$(exact "$2" | wc -l)" -eq "$3" ]
    paste <(exact "$1") <(exact "$2") |
        awk '{ d = $1 - $2; if (d > 1e-10 || d < -1e-10) { print; bad = 1 } } END { exit bad }'
}

# one_error CODE TEXT: of what 'run' ran. A line of error, and no other one.
one_error() {
    echo "$output"
    [ "$status" -eq "$1" ]
    [ "$(grep -c "error: " <<<"$output")" -eq 1 ]
    [[ "$output" == *"$2"* ]]
}
