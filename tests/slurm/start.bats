# SPDX-License-Identifier: MIT
# What the launcher adds to the start of a job of 1,000 ranks: etc/bench/launch, by make check-long
# only, since that takes 125 virtual nodes.

load common

@test "the launcher adds less than 2 s to the start of a job of 1,000 ranks" {
    [ -n "${TASUKI_TEST_LONG:-}" ] || skip "125 virtual nodes: make check-long"
    run "$srcdir/etc/bench/launch/run"
    echo "$output"
    [ "$status" -ne 77 ] || skip "${output#launch: skipped, }"
    [ "$status" -eq 0 ]
    sed 's/^/# /' <<<"$output" >&3
}
