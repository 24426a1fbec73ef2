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

@test "four ranks say a usage error once" {
    for rank in 0 1 2 3; do
        code=0
        PMIX_RANK=$rank "$TASUKI" info --nosuchthing 2>>"$BATS_TEST_TMPDIR/errors" || code=$?
        [ "$code" -eq 2 ]
    done
    [ "$(wc -l <"$BATS_TEST_TMPDIR/errors")" -eq 1 ]
}
