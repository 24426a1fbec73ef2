/* SPDX-License-Identifier: MIT */
#include "train/shard.h"

#include <string.h>

#include "unit.h"

enum { MOST = 64 };
#define MIB ((size_t)1 << 20)

static size_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(*state >> 33);
}

/* After the moves no rank has SHARD_MOVED more than the mean. */
static void check(const size_t *bytes, int n)
{
    size_t after[MOST], total = 0, mean;
    struct shard_move *moves;
    int n_moves = shard_moves(bytes, n, &moves);

    memcpy(after, bytes, (size_t)n * sizeof(*after));
    for (int r = 0; r < n; r++)
        total += bytes[r];
    mean = total / (size_t)n;
    for (int i = 0; i < n_moves; i++) {
        assert_true(moves[i].bytes >= SHARD_MOVED);
        assert_true(moves[i].bytes <= after[moves[i].from]);
        if (i > 0)
            assert_true(moves[i].from >= moves[i - 1].from && moves[i].to >= moves[i - 1].to);
        after[moves[i].from] -= moves[i].bytes;
        after[moves[i].to] += moves[i].bytes;
        assert_true(after[moves[i].from] >= mean);
    }
    free(moves);
    for (int r = 0; r < n; r++)
        assert_true(after[r] < mean + SHARD_MOVED);
}

static void ranks_get_the_mean(void **state)
{
    const size_t bytes[] = { 40 * MIB, 0, 8 * MIB, 0 };
    const struct shard_move wanted[] = { { 0, 1, 12 * MIB }, { 0, 2, 4 * MIB },
                                         { 0, 3, 12 * MIB } };
    struct shard_move *moves;

    (void)state;
    assert_int_equal(shard_moves(bytes, 4, &moves), 3);
    assert_memory_equal(moves, wanted, sizeof(wanted));
    free(moves);
}

static void little_stays(void **state)
{
    const size_t bytes[] = { 3 * MIB / 2, 0, MIB, MIB / 2 };
    struct shard_move *moves;

    (void)state;
    assert_int_equal(shard_moves(bytes, 4, &moves), 0);
    free(moves);
    assert_int_equal(shard_moves(bytes, 1, &moves), 0);
    free(moves);
}

/* Many that are a little short take 1 MiB each until nothing is left. */
static void few_are_sent_much(void **state)
{
    size_t bytes[MOST] = { 32 * MIB };
    struct shard_move *moves;

    (void)state;
    assert_int_equal(shard_moves(bytes, MOST, &moves), 31);
    for (int i = 0; i < 31; i++) {
        assert_int_equal(moves[i].to, i + 1);
        assert_int_equal(moves[i].bytes, MIB);
    }
    free(moves);
}

static void any_bytes_are_evened_out(void **state)
{
    uint64_t random = 7;
    size_t bytes[MOST];

    (void)state;
    for (int i = 0; i < 1000; i++) {
        int n = 1 + (int)(random_next(&random) % MOST);

        for (int r = 0; r < n; r++)
            bytes[r] = random_next(&random) % 3 ? random_next(&random) % (64 * MIB) : 0;
        check(bytes, n);
    }
    for (int r = 0; r < MOST; r++)      /* more than a sum of them can be */
        bytes[r] = SIZE_MAX / 2;
    bytes[0] -= 32 * MIB;
    assert_int_equal(shard_moves(bytes, MOST, &(struct shard_move *){ NULL }), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_get_the_mean),
        cmocka_unit_test(little_stays),
        cmocka_unit_test(few_are_sent_much),
        cmocka_unit_test(any_bytes_are_evened_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
