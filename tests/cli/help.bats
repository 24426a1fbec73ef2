# The program itself: help, errors, exit codes.

@test "help lists the commands" {
    run "$TASUKI" --help
    [ "$status" -eq 0 ]
    [[ "$output" == *"info "* ]]
}

@test "no command is a usage error" {
    run "$TASUKI"
    [ "$status" -eq 2 ]
}

@test "a mistyped command is answered with the nearest one" {
    run "$TASUKI" inof
    [ "$status" -eq 2 ]
    [[ "$output" == *"did you mean info?"* ]]
}

@test "every command prints its help and exits 0" {
    for command in $("$TASUKI" --help | awk '/^  [a-z]/ { print $1 }'); do
        run "$TASUKI" "$command" --help
        [ "$status" -eq 0 ]
        [[ "$output" == "Usage: tasuki $command"* ]]
        [[ "$output" == *"--help"* ]]
    done
}

@test "an unknown option is a usage error of every command" {
    for command in $("$TASUKI" --help | awk '/^  [a-z]/ { print $1 }'); do
        run "$TASUKI" "$command" --nosuchthing
        [ "$status" -eq 2 ]
        [[ "$output" == *"unknown option --nosuchthing"* ]]
    done
}

@test "info prints JSON with schema and version" {
    run "$TASUKI" info --format json
    [ "$status" -eq 0 ]
    [[ "$output" == *'"schema": "tasuki-info"'* ]]
}

@test "info shows where a setting came from" {
    TASUKI_LR=0.5 run "$TASUKI" info --settings
    [ "$status" -eq 0 ]
    echo "$output" | grep -E '^lr +0.5 +# TASUKI_LR$'
    echo "$output" | grep -E '^seed +# default$'
}

@test "a full disk behind standard output is an error" {
    [ -c /dev/full ] || skip "no /dev/full"
    run sh -c '"$TASUKI" info >/dev/full'
    [ "$status" -eq 1 ]
    [[ "$output" == *"standard output: No space left"* ]]
}

# What each of four ranks of a launcher says, "RANK=..." being how it knows who it is.
four_ranks() {
    local rank variable=$1 pids=() code
    shift
    : >"$BATS_TEST_TMPDIR/errors"
    for rank in 3 2 1 0; do
        env "$variable=$rank" "$@" 2>>"$BATS_TEST_TMPDIR/errors" &
        pids+=($!)
    done
    for rank in 0 1 2 3; do
        code=0
        wait "${pids[rank]}" || code=$?
        [ "$code" -eq 2 ]
    done
    cat "$BATS_TEST_TMPDIR/errors"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/errors")" -eq 1 ]
}

@test "four ranks say a usage error once, whoever started them" {
    four_ranks PMIX_RANK "$TASUKI" info --nosuchthing
    four_ranks SLURM_PROCID "$TASUKI" info --nosuchthing
    four_ranks PMI_RANK "$TASUKI" nosuchcommand
}

# Rank 0 comes last: mpirun ends all ranks when the first of them has failed.
@test "four ranks of mpirun say a usage error once, though rank 0 starts late" {
    command -v mpirun >/dev/null || skip "no mpirun"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_orte_tmpdir_base=$BATS_TEST_TMPDIR \
        PRTE_MCA_prte_tmpdir_base=$BATS_TEST_TMPDIR \
        PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    run timeout 120 mpirun -n 4 sh -c '
        if [ "$PMIX_RANK" = 0 ]; then
            until grep -qs . "$1/others" && [ "$(wc -l <"$1/others")" -eq 3 ]; do :; done
        else
            echo "$PMIX_RANK" >>"$1/others"
        fi
        exec "$TASUKI" train --nosuchthing' sh "$BATS_TEST_TMPDIR"
    echo "$output"
    [ "$status" -eq 2 ]
    [ "$(grep -c 'unknown option --nosuchthing' <<<"$output")" -eq 1 ]
}
