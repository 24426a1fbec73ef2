/* SPDX-License-Identifier: MIT */
#include "kernels/backend.h"

#include <string.h>

#include "kernels/reference/reference.h"

static const struct backend *const backends[] = {
    &reference_backend,
};

const struct backend *backend_find(const char *name)
{
    size_t i;

    for (i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}
