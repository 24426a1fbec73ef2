/* SPDX-License-Identifier: MIT */
#include "train/forward.h"

#include <string.h>

#include "base/mem.h"
#include "comm/crew.h"
#include "unit.h"

enum { RANKS = 7, RANGES = 40, LONGEST = 3 << 20 };

struct context {
    int first;              /* rank that comes with an error, or -1 */
    int fails;              /* rank that fails in the midst of it, or -1 */
    size_t meet;
};

struct mine {
    int rank, taken;
    const struct context *context;
    unsigned char *got[RANGES];
};

static size_t bytes_of(int range)
{
    /* None, less than a piece, a piece exactly, some. */
    static const size_t sizes[] = { 0, 8, 1000, 1 << 20, LONGEST - 40 };

    return sizes[range % 5];
}

static unsigned char byte_of(int range, size_t i)
{
    return (unsigned char)((size_t)range * 7 + i + i / 251);
}

static int reader_of(int range)
{
    return range * 3 % RANKS;
}

static bool is_wanted(int range, int rank)
{
    /* By nobody, by all, by the reader alone, by some. */
    switch (range / 5 % 4) {
    case 0: return false;
    case 1: return true;
    case 2: return rank == reader_of(range);
    default: return (range + rank) % 3 == 0;
    }
}

static int take(void *user, int range, size_t at, const void *data, size_t bytes,
                struct err *err)
{
    struct mine *m = user;

    if (m->rank == m->context->fails && m->taken++ == 2)
        return err_set(err, "no place for range %d", range);
    memcpy(m->got[range] + at, data, bytes);
    return 0;
}

static int forward_ranges(struct comm *comm, struct mine *m, struct err *err)
{
    struct forward_range ranges[RANGES];
    unsigned char *read[RANGES] = { NULL };
    bool wanted[RANGES];
    struct forward forward = { .n = RANGES, .ranges = ranges, .wanted = wanted, .take = take,
                               .user = m, .meet = m->context->meet };
    int bad;

    for (int i = 0; i < RANGES; i++) {
        if (reader_of(i) == m->rank)
            read[i] = mem_new(bytes_of(i), 1);
        for (size_t b = 0; b < bytes_of(i) && read[i]; b++)
            read[i][b] = byte_of(i, b);
        ranges[i] = (struct forward_range){ reader_of(i), bytes_of(i), read[i] };
        wanted[i] = is_wanted(i, m->rank);
        m->got[i] = wanted[i] ? mem_new(bytes_of(i), 1) : NULL;
    }
    if (m->rank == m->context->first)
        err_set(err, "came with an error");
    bad = forward_run(&forward, comm, m->rank == m->context->first, err);
    for (int i = 0; i < RANGES; i++)
        free(read[i]);
    return bad;
}

static void check_bytes(const struct mine *m, const struct err *err)
{
    for (int i = 0; i < RANGES; i++)
        for (size_t b = 0; b < bytes_of(i) && m->got[i]; b++)
            MUST(m->got[i][b] == byte_of(i, b));
}

static int work(const struct launch *launch, void *data, struct err *err)
{
    const struct context *context = data;
    struct comm *comm = comm_open(launch, err);
    struct mine m = { .rank = comm_rank(comm), .context = context };
    int bad = forward_ranges(comm, &m, err);

    if (context->first >= 0)
        MUST(bad && strstr(err->text, "came with an error"));
    else if (context->fails >= 0)
        MUST(bad && strstr(err->text, "no place for range"));
    else
        MUST(!bad);
    if (!bad)
        check_bytes(&m, err);
    for (int i = 0; i < RANGES; i++)
        free(m.got[i]);
    comm_close(comm);
    return 0;
}

static void run_with(struct context context)
{
    struct launch launch = { .kind = LAUNCH_ALONE };
    struct err err = { 0 };

    assert_int_equal(crew_run(RANKS, &launch, work, &context, &err), 0);
}

static void who_wants_a_range_has_it_whoever_reads_it(void **state)
{
    (void)state;
    run_with((struct context){ -1, -1, FORWARD_MEET });
    run_with((struct context){ -1, -1, 1 << 20 });
}

static void a_rank_that_comes_with_an_error_stops_all(void **state)
{
    (void)state;
    run_with((struct context){ RANKS - 1, -1, FORWARD_MEET });
}

static void a_rank_that_fails_holds_nobody_up_and_all_learn_of_it(void **state)
{
    (void)state;
    for (int r = 0; r < RANKS; r++)
        run_with((struct context){ -1, r, r % 2 ? FORWARD_MEET : 2 << 20 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_wants_a_range_has_it_whoever_reads_it),
        cmocka_unit_test(a_rank_that_comes_with_an_error_stops_all),
        cmocka_unit_test(a_rank_that_fails_holds_nobody_up_and_all_learn_of_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
