/* SPDX-License-Identifier: MIT */
#include "graph/freeze.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/near.h"

#define LISTED 5        /* names in the error */

static bool matches(const char *pattern, const char *name)
{
    return name && (strcmp(pattern, name) == 0 || fnmatch(pattern, name, 0) == 0);
}

/* The name whose beginning is nearest to what the pattern has before its first wildcard. */
static const char *nearest(const struct onnx *onnx, const char *pattern)
{
    int head = (int)strcspn(pattern, "*?["), i;
    char *word = mem_printf("%.*s", head, pattern);
    const char *best = NULL;
    struct near near;

    near_start(&near, word);
    for (i = 0; i < onnx->n_initializers && head > 0; i++) {
        const char *name = onnx->initializers[i].name;
        char *start = pattern[head] ? mem_printf("%.*s", head, name) : mem_strdup(name);
        unsigned before = near.distance;

        near_try(&near, start);
        if (near.distance < before)
            best = name;
        free(start);
    }
    free(word);
    return best;
}

static int no_match(const struct onnx *onnx, const char *option, const char *pattern,
                    struct err *err)
{
    const char *near = nearest(onnx, pattern);
    char names[700] = "";
    size_t used = 0;
    int i;

    if (near)
        return err_set_code(err, EXIT_USAGE, "%s \"%.200s\" matches no initializer; did you "
                            "mean \"%.200s\"?", option, pattern, near);
    for (i = 0; i < onnx->n_initializers && i < LISTED; i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s\"%.120s\"",
                                 i ? ", " : "", onnx->initializers[i].name);
    return err_set_code(err, EXIT_USAGE, "%s \"%.200s\" matches no initializer; they are %s%s",
                        option, pattern, names, i < onnx->n_initializers ? ", ..." : "");
}

static bool match_one(const struct onnx *onnx, const char *pattern, bool *named)
{
    bool matched = false;
    int i;

    for (i = 0; i < onnx->n_initializers; i++) {
        if (!matches(pattern, onnx->initializers[i].name) &&
            !matches(pattern, onnx->origin[i]))
            continue;
        named[onnx->copy_of[i] < 0 ? i : onnx->copy_of[i]] = true;
        matched = true;
    }
    return matched;
}

bool *freeze_match(const struct onnx *onnx, const char *option, int n,
                   const char *const *patterns, struct err *err)
{
    bool *named = mem_new((size_t)onnx->n_initializers, sizeof(*named));
    int i;

    for (i = 0; i < n; i++)
        if (!match_one(onnx, patterns[i], named)) {
            no_match(onnx, option, patterns[i], err);
            free(named);
            return NULL;
        }
    return named;
}

enum freeze *freeze_resolve(const struct onnx *onnx, int n, const char *const *patterns,
                            struct err *err)
{
    bool *asked = freeze_match(onnx, "--freeze", n, patterns, err);
    enum freeze *freeze;
    int i;

    if (!asked)
        return NULL;
    freeze = mem_new((size_t)onnx->n_initializers, sizeof(*freeze));
    for (i = 0; i < onnx->n_initializers; i++)
        freeze[i] = asked[i] ? FREEZE_ASKED
                    : i >= (int)onnx->main.proto->n_initializer ? FREEZE_SUBGRAPH
                    : onnx->constant[i] ? FREEZE_EXPORTER : FREEZE_NOT;
    free(asked);
    return freeze;
}
