# SPDX-License-Identifier: MIT
# Random faults: a sample, or 50 of them where TASUKI_TEST_LONG is set (make check-long).

load common

@test "jobs recover by themselves from faults at random moments, with the same curve" {
    local reason faults=${TASUKI_TEST_LONG:+50}
    reason=$(no_mpi)
    [ -z "$reason" ] || skip "$reason"
    run "$srcdir/etc/bench/chaos/run" --faults ${faults:-2} --seed ${TASUKI_TEST_SEED:-$RANDOM}
    # A log kept elsewhere may end with the last lines of this.
    tail -n 40 <<<"$output"
    grep -E '^(seed|fault|chaos)' <<<"$output"
    [ "$status" -ne 77 ] || skip "${output#chaos: skipped, }"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^fault .*: ok' <<<"$output")" -eq ${faults:-2} ]
    if [ -n "$faults" ]; then
        grep -q '^fault .*, starts: ok' <<<"$output"
        grep -q '^fault .*, writes: ok' <<<"$output"
    fi
    echo "# ${lines[0]}" >&3
}
