/* SPDX-License-Identifier: MIT */
#include "scheduler/layers.h"

/* What a block keeps depends on what follows, too: the last of many differs a little. */
#define PARAMETERS 1.01
#define ACTIVATIONS 3
/* More of them, where a normalization that is behind all layers is in the last block. */
#define LAST_PARAMETERS 1.25
#define LAST_ACTIVATIONS 12

static bool within(double a, double b, double factor)
{
    return a <= b * factor && b <= a * factor;
}

static bool same_block(const struct cost *cost, int a, int b)
{
    const struct cost_block *x = &cost->blocks[a], *y = &cost->blocks[b];

    return within(x->parameters, y->parameters, PARAMETERS) &&
           within(x->activations[0], y->activations[0], ACTIVATIONS);
}

/* Block 'a', and something that is behind the last layer? */
static bool ends_as(const struct cost *cost, int a, int b)
{
    const struct cost_block *x = &cost->blocks[a], *y = &cost->blocks[b];

    return y->parameters >= x->parameters && y->activations[0] >= x->activations[0] &&
           within(x->parameters, y->parameters, LAST_PARAMETERS) &&
           within(x->activations[0], y->activations[0], LAST_ACTIVATIONS);
}

struct layers layers_find(const struct cost *cost)
{
    struct layers best = { 0 };

    for (int p = 1; p <= cost->n_blocks / 2; p++) {
        int run = 0;

        for (int i = 0; i + p < cost->n_blocks; i++) {
            bool same = same_block(cost, i, i + p);
            int n;

            if (same || (p > 1 && run % p == p - 1 && ends_as(cost, i, i + p)))
                run++;
            else
                run = 0;
            n = run ? (run + p) / p : 0;
            if (n > 1 && n * p > best.n * best.blocks)
                best = (struct layers){ i + 1 - run, p, n };
            run = same ? run : 0;
        }
    }
    return best;
}

int layers_behind(const struct cost *cost, const struct layers *layers)
{
    return cost->n_blocks - layers->first - layers->n * layers->blocks;
}

bool layers_are_all(const struct cost *cost, const struct layers *layers)
{
    return layers->n > 1 && layers->first <= layers->blocks &&
           layers_behind(cost, layers) <= layers->blocks;
}
