/* SPDX-License-Identifier: MIT */
#include "kernels/fallbacks.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void fallbacks_add(struct fallbacks *fallbacks, enum fallback how, const char *op, int kernels)
{
    for (int i = 0; i < fallbacks->n; i++)
        if (fallbacks->list[i].how == how && strcmp(fallbacks->list[i].op, op) == 0) {
            fallbacks->list[i].kernels += kernels;
            return;
        }
    *(struct fallback_count *)mem_push((void **)&fallbacks->list, &fallbacks->n,
                                       sizeof(struct fallback_count)) =
        (struct fallback_count){ how, op, kernels };
}

void fallbacks_clear(struct fallbacks *fallbacks)
{
    free(fallbacks->list);
    *fallbacks = (struct fallbacks){ 0 };
}
