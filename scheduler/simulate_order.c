/* SPDX-License-Identifier: MIT */
/* Events by start, then by stage and replica; what is equal stays as it was recorded. A sort by
 * digits: there may be millions of them.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/simulate_private.h"

#define DIGIT_BITS 11
#define DIGITS (1 << DIGIT_BITS)
#define KEY_BITS 64

struct key {
    uint64_t key;
    int at;             /* of the event */
};

static unsigned digit(const struct key *k, int shift)
{
    return (unsigned)(k->key >> shift) & (DIGITS - 1);
}

/* By one digit from 'keys' to 'to'; false: it is the same in all, and they stay. */
static bool sort_digit(const struct key *keys, struct key *to, int n, int shift)
{
    int at[DIGITS] = { 0 };

    for (int i = 0; i < n; i++)
        at[digit(&keys[i], shift)]++;
    if (at[digit(&keys[0], shift)] == n)
        return false;
    for (int d = 0, sum = 0; d < DIGITS; d++) {
        int count = at[d];

        at[d] = sum;
        sum += count;
    }
    for (int i = 0; i < n; i++)
        to[at[digit(&keys[i], shift)]++] = keys[i];
    return true;
}

static void sort_keys(struct key **keys, struct key **spare, int n)
{
    for (int shift = 0; shift < KEY_BITS; shift += DIGIT_BITS)
        if (sort_digit(*keys, *spare, n, shift)) {
            struct key *sorted = *spare;

            *spare = *keys;
            *keys = sorted;
        }
}

/* Of times, which are not negative: then their bits ascend as they do. */
static uint64_t bits_of(double seconds)
{
    uint64_t bits;

    memcpy(&bits, &seconds, sizeof(bits));
    return bits;
}

void sim_sort_events(struct sim *sim)
{
    int n = sim->n_events;
    struct key *keys = mem_new((size_t)n, sizeof(*keys));
    struct key *spare = mem_new((size_t)n, sizeof(*spare));
    struct simulated_event *sorted;

    for (int i = 0; i < n; i++) {
        const struct simulated_event *e = &sim->events[i];

        keys[i] = (struct key){ (uint64_t)e->stage << 32 | (uint64_t)e->replica, i };
    }
    if (n)
        sort_keys(&keys, &spare, n);
    for (int i = 0; i < n; i++)
        keys[i].key = bits_of(sim->events[keys[i].at].start);
    if (n)
        sort_keys(&keys, &spare, n);
    free(spare);
    sorted = mem_new((size_t)n, sizeof(*sorted));
    for (int i = 0; i < n; i++)
        sorted[i] = sim->events[keys[i].at];
    free(sim->events);
    sim->events = sorted;
    free(keys);
}
