/* SPDX-License-Identifier: MIT */
/* The model, the plan that may name it, and what --init names. These files are rank 0's alone to
 * read, but for the plan: what the others need to know of them it sends, weights later (weights.h).
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "train/optimizer.h"
#include "train/safetensors.h"
#include "train/session.h"

/* Its state decides how much memory the plan foresees. */
static int settle_optimizer(struct session *s, const struct plan *plan, struct err *err)
{
    struct train_settings *t = &s->settings;
    struct optimizer_args usual;
    enum optimizer_kind kind;

    if (!plan->optimizer[0])
        return 0;
    if (optimizer_from_name(plan->optimizer, &kind) < 0)
        return err_set(err, "%s: optimizer \"%.64s\" is not known", t->input, plan->optimizer);
    usual = optimizer_defaults(kind);
    optimizer_resume(&t->optimizer, &t->optimizer_given, &usual);
    return 0;
}

int session_open_given(struct session *session, struct err *err)
{
    struct session *s = session;

    if (!plan_is_file(s->settings.input))
        return 0;
    s->given = plan_load(s->settings.input, err);
    return session_agree(s, !s->given, err);
}

static int take_input(struct session *s, struct err *err)
{
    const char *input = s->settings.input;

    if (!s->given) {
        s->model_path = mem_strdup(input);
        return 0;
    }
    if (!s->given->model_path)
        return err_set(err, "%s: made from a cost file alone: it names no model", input);
    if (session_precision(s, input, s->given->precision, err) < 0 ||
        settle_optimizer(s, s->given, err) < 0)
        return -1;
    if (!s->settings.offload_given)
        s->settings.offload = s->given->offload;
    s->model_path = plan_find_model(s->given, input);
    return 0;
}

static int open_file(struct session *s, struct err *err)
{
    if (take_input(s, err) < 0)
        return -1;
    if (s->rank == 0 && !(s->model = planning_model(s->model_path, err)))
        return -1;
    return 0;
}

/* '*packed' is malloc'ed on all ranks. */
static int send_model(struct session *s, void **packed, size_t *size, struct err *err)
{
    *packed = s->rank == 0 ? model_pack(s->model, size) : NULL;
    return comm_broadcast(s->comm, 0, packed, size, err);
}

static int check_model(struct session *s, const void *packed, size_t size, struct err *err)
{
    if (!s->model && !(s->model = model_unpack(s->model_path, packed, size, err)))
        return -1;
    if (s->given && !plan_suits(s->given, model_hash(s->model)))
        return err_set(err, "%s: made for another graph than that of %s: plan again",
                       s->settings.input, s->model_path);
    return 0;
}

int session_open_model(struct session *session, struct err *err)
{
    struct session *s = session;
    void *packed = NULL;
    size_t size = 0;
    int bad = session_agree(s, open_file(s, err) < 0, err);

    if (!bad && s->size > 1)
        bad = send_model(s, &packed, &size, err);
    if (!bad)
        bad = session_agree(s, check_model(s, packed, size, err) < 0, err);
    free(packed);
    return bad;
}

/* The size of the file, then its head; malloc'ed. */
static void *pack_head(const struct safetensors *file, size_t *size)
{
    size_t all = safetensors_map(file)->size, bytes;
    const void *head = safetensors_head(file, &bytes);
    char *packed = mem_new(sizeof(all) + bytes, 1);

    memcpy(packed, &all, sizeof(all));
    memcpy(packed + sizeof(all), head, bytes);
    *size = sizeof(all) + bytes;
    return packed;
}

static struct safetensors *unpack_head(const char *path, const void *packed, size_t size,
                                       struct err *err)
{
    size_t all = 0;

    if (size < sizeof(all)) {
        err_set(err, "%s: what was sent of it is cut off", path);
        return NULL;
    }
    memcpy(&all, packed, sizeof(all));
    return safetensors_open_head(path, (const char *)packed + sizeof(all), size - sizeof(all),
                                 all, err);
}

static int share_head(struct session *s, const char *path, struct err *err)
{
    void *packed = NULL;
    size_t size = 0;
    int bad;

    if (s->rank == 0)
        packed = pack_head(s->initial_file, &size);
    bad = comm_broadcast(s->comm, 0, &packed, &size, err);
    if (!bad && s->rank != 0)
        s->initial_file = unpack_head(path, packed, size, err);
    free(packed);
    return bad ? bad : session_agree(s, !s->initial_file, err);
}

int session_open_initial(struct session *session, struct err *err)
{
    struct session *s = session;
    const char *path = s->settings.init;

    if (!path || strcmp(path, INITIAL_FAN_IN) == 0)
        return 0;
    if (s->rank == 0)
        s->initial_file = safetensors_open(path, err);
    if (session_agree(s, s->rank == 0 && !s->initial_file, err))
        return -1;
    return s->size > 1 ? share_head(s, path, err) : 0;
}
