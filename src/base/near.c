/* SPDX-License-Identifier: MIT */
#include "base/near.h"

#include <limits.h>
#include <string.h>

#define LONGEST 64

/* Edits (insert, delete, replace, swap two neighbours) from a to b; UINT_MAX where one is too
 * long to be a word.
 */
static unsigned edits(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned row[LONGEST + 1][LONGEST + 1];

    if (n > LONGEST || m > LONGEST)
        return UINT_MAX;
    for (unsigned i = 0; i <= n; i++) {
        row[i][0] = i;
        for (unsigned j = i ? 1 : 0; j <= m; j++) {
            unsigned cost = j;

            if (i > 0) {
                cost = row[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
                cost = cost < row[i - 1][j] + 1 ? cost : row[i - 1][j] + 1;
                cost = cost < row[i][j - 1] + 1 ? cost : row[i][j - 1] + 1;
            }
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                row[i - 2][j - 2] + 1 < cost)
                cost = row[i - 2][j - 2] + 1;
            row[i][j] = cost;
        }
    }
    return row[n][m];
}

void near_start(struct near *near, const char *word)
{
    size_t length = strlen(word);

    near->word = word;
    near->best = NULL;
    /* A third of the letters may be wrong, and one in short words. */
    near->distance = length < 4 ? 2 : (unsigned)(length / 3) + 1;
}

void near_try(struct near *near, const char *candidate)
{
    size_t length = strlen(near->word);
    unsigned distance = edits(near->word, candidate);

    /* "check" is a fair guess at "checkpoint", though half of it is missing. */
    if (length >= 3 && strncmp(near->word, candidate, length) == 0)
        distance = 1;
    if (distance < near->distance) {
        near->distance = distance;
        near->best = candidate;
    }
}
