/* SPDX-License-Identifier: MIT */
#include "base/digits.h"

#include <stdlib.h>

#include "base/mem.h"

#define DIGIT_BITS 11
#define DIGITS (1 << DIGIT_BITS)
#define KEY_BITS 64

static unsigned digit(uint64_t key, int shift)
{
    return (unsigned)(key >> shift) & (DIGITS - 1);
}

static void sort_digit(const struct digits_key *keys, struct digits_key *to, int n, int shift)
{
    int at[DIGITS] = { 0 };

    for (int i = 0; i < n; i++)
        at[digit(keys[i].key, shift)]++;
    for (int d = 0, sum = 0; d < DIGITS; d++) {
        int count = at[d];

        at[d] = sum;
        sum += count;
    }
    for (int i = 0; i < n; i++)
        to[at[digit(keys[i].key, shift)]++] = keys[i];
}

void digits_sort(struct digits_key **keys, int n)
{
    struct digits_key *spare = mem_new((size_t)n, sizeof(*spare));
    uint64_t differ = 0;

    for (int i = 1; i < n; i++)
        differ |= (*keys)[i].key ^ (*keys)[0].key;
    for (int shift = 0; shift < KEY_BITS; shift += DIGIT_BITS) {
        struct digits_key *sorted = spare;

        if (!digit(differ, shift))
            continue;
        sort_digit(*keys, sorted, n, shift);
        spare = *keys;
        *keys = sorted;
    }
    free(spare);
}
