/* SPDX-License-Identifier: MIT */
/* Kernels that do not run as a GPU could: on which operators of all ranks that falls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernels/fallbacks.h"
#include "train/session.h"

/* Keys of the log. */
static const char *const keys[FALLBACKS] = { "host", "unfused" };

/* A line for each: "0 Conv 3". */
static char *pack(const struct fallbacks *fallbacks)
{
    char *text = mem_strdup("");

    for (int i = 0; i < fallbacks->n; i++) {
        const struct fallback_count *c = &fallbacks->list[i];
        char *more;

        if (c->kernels <= 0)
            continue;
        more = mem_printf("%s%d %s %d\n", text, (int)c->how, c->op, c->kernels);
        free(text);
        text = more;
    }
    return text;
}

/* What a rank packed, 'size' bytes of it. */
static void add(json_t *sums, const char *text, size_t size)
{
    for (const char *end; size > 0 && (end = memchr(text, '\n', size)); text = end + 1) {
        char op[64];
        int how, kernels;
        json_t *of;

        size -= (size_t)(end + 1 - text);
        if (sscanf(text, "%d %63s %d", &how, op, &kernels) != 3 || how < 0 || how >= FALLBACKS)
            continue;
        of = json_object_get(sums, keys[how]);
        json_object_set_new(of, op, json_integer(kernels + json_integer_value(json_object_get(of, op))));
    }
}

static void say(const json_t *sums)
{
    static const char *const what[FALLBACKS] = {
        "kernels run on the host", "kernels of attentions are not fused, for cuDNN has none",
    };

    for (int i = 0; i < FALLBACKS; i++) {
        const char *op;
        char *text = mem_strdup("");
        json_t *kernels;

        json_object_foreach(json_object_get(sums, keys[i]), op, kernels) {
            char *more = mem_printf("%s%s%s (%lld)", text, *text ? ", " : "", op,
                                    (long long)json_integer_value(kernels));

            free(text);
            text = more;
        }
        if (*text)
            log_info("cuda: %s: %s", what[i], text);
        free(text);
    }
}

int session_tell_fallbacks(struct session *session, struct err *err)
{
    struct session *s = session;
    const void **parts;
    size_t *sizes;
    void *block = NULL;
    char *mine;
    int bad;

    if (!s->backend->fallbacks)
        return 0;
    parts = mem_new((size_t)s->size, sizeof(*parts));
    sizes = mem_new((size_t)s->size, sizeof(*sizes));
    mine = pack(s->backend->fallbacks(s->device));
    bad = comm_exchange(s->comm, mine, strlen(mine), &block, parts, sizes, err);
    if (!bad && s->rank == 0) {
        s->fallbacks = json_pack("{s:{}, s:{}}", keys[FALLBACK_HOST], keys[FALLBACK_UNFUSED]);
        for (int r = 0; r < s->size; r++)
            add(s->fallbacks, parts[r], sizes[r]);
        say(s->fallbacks);
    }
    free(mine);
    free(block);
    free(parts);
    free(sizes);
    return session_agreed(s, bad, err);
}
