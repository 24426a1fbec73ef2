/* SPDX-License-Identifier: MIT */
/* What puts many things in order: timers.h, digits.h; beside plain searches and qsort(). */
#include "unit.h"

#include <math.h>

#include "base/digits.h"
#include "base/mem.h"
#include "base/timers.h"

#define IDS 700

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static double first_of_all(const double *when, int n)
{
    double first = INFINITY;

    for (int i = 0; i < n; i++)
        first = fmin(first, when[i]);
    return first;
}

/* Of the same time, which is often so here, the lowest id; ids grow as they come. */
static void the_first_timer_is_that_of_a_search(void **state)
{
    struct timers timers = { .taken = -1 };
    double when[IDS];
    uint64_t seed = 1;
    int most = 0, taken = 0;

    (void)state;
    for (int i = 0; i < IDS; i++)
        when[i] = INFINITY;
    assert_true(isinf(timers_first(&timers)));
    for (int step = 0; step < 40000; step++) {
        double first = first_of_all(when, IDS), later = (double)(next_random(&seed) % 50);

        most = step / 50 < IDS - 1 ? step / 50 : IDS - 1;
        assert_true(timers_first(&timers) == first);
        if (next_random(&seed) % 3 && isfinite(first)) {
            int id = timers_take(&timers);

            assert_true(when[id] == first);
            for (int i = 0; i < id; i++)
                assert_true(when[i] > first);
            when[id] = INFINITY;
            /* Others are set meanwhile. Mostly it is set anew, else gone when the next is asked for. */
            for (int k = (int)(next_random(&seed) % 3); k > 0; k--) {
                int other = (int)(next_random(&seed) % (uint64_t)(most + 1));

                when[other] = first + (double)(next_random(&seed) % 50);
                timers_set(&timers, other, when[other]);
            }
            if (next_random(&seed) % 4) {
                when[id] = first + later;
                timers_set(&timers, id, when[id]);
            }
            taken++;
        } else {
            int id = (int)(next_random(&seed) % (uint64_t)(most + 1));

            when[id] = next_random(&seed) % 5 ? later + (isfinite(first) ? first : 0) : INFINITY;
            timers_set(&timers, id, when[id]);
        }
    }
    assert_in_range(taken, 10000, 40000);
    timers_clear(&timers);
}

static int by_key(const void *a, const void *b)
{
    const struct digits_key *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->at - y->at;
}

/* Keys of one digit to all, many of them the same: those stay as they were. */
static void digits_sort_as_qsort_does(void **state)
{
    uint64_t seed = 7;

    (void)state;
    for (int n = 0; n < 3000; n += 1 + n / 3) {
        for (int bits = 1; bits < 64; bits += bits > 60 ? 1 : 10) {
            struct digits_key *keys = mem_new((size_t)n, sizeof(*keys));
            struct digits_key *sorted = mem_new((size_t)n, sizeof(*sorted));

            for (int i = 0; i < n; i++) {
                uint64_t key = next_random(&seed) << 33 ^ next_random(&seed);

                sorted[i] = keys[i] = (struct digits_key){ key & ((UINT64_C(1) << bits) - 1), i };
            }
            if (n)
                qsort(sorted, (size_t)n, sizeof(*sorted), by_key);
            digits_sort(&keys, n);
            for (int i = 0; i < n; i++) {
                assert_true(keys[i].key == sorted[i].key);
                assert_int_equal(keys[i].at, sorted[i].at);
            }
            free(keys);
            free(sorted);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_timer_is_that_of_a_search),
        cmocka_unit_test(digits_sort_as_qsort_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
