/* SPDX-License-Identifier: MIT */
#include "train/recipe.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"

static const char *const names[] = {
    [RATE_CONSTANT] = "constant", [RATE_STEP] = "step", [RATE_COSINE] = "cosine",
    [RATE_LINEAR] = "linear", [RATE_ONE_CYCLE] = "one-cycle",
};

struct recipe recipe_defaults(void)
{
    return (struct recipe){ .every = { 30, true }, .factor = 0.1, .final = -1 };
}

const char *recipe_schedule_name(enum rate_kind kind)
{
    return names[kind];
}

void recipe_resume(struct recipe *recipe, const struct recipe_given *given,
                   const struct recipe *saved)
{
    struct recipe *r = recipe;

    if (!given->schedule || r->schedule == saved->schedule) {
        r->schedule = saved->schedule;
        r->warmup = given->warmup ? r->warmup : saved->warmup;
        r->every = given->every ? r->every : saved->every;
        r->length = given->length ? r->length : saved->length;
        r->factor = given->factor ? r->factor : saved->factor;
        r->final = given->final ? r->final : saved->final;
    }
    r->clip = given->clip ? r->clip : saved->clip;
    r->label_smoothing = given->label_smoothing ? r->label_smoothing : saved->label_smoothing;
    r->ema = given->ema ? r->ema : saved->ema;
    if (!given->no_decay) {
        r->n_no_decay = saved->n_no_decay;
        r->no_decay = saved->no_decay;
    }
}

static int to_steps(struct span *span, const char *option, int64_t steps_per_epoch,
                    struct err *err)
{
    if (span->epochs && span->n > INT64_MAX / 2 / steps_per_epoch)
        return err_set_code(err, EXIT_USAGE, "--%s: %lld epochs are too many", option,
                            (long long)span->n);
    *span = (struct span){ span->epochs ? span->n * steps_per_epoch : span->n, false };
    return 0;
}

int recipe_resolve(struct recipe *recipe, int64_t steps_per_epoch, int64_t total_steps,
                   struct err *err)
{
    struct recipe *r = recipe;
    bool falls = r->schedule != RATE_CONSTANT && r->schedule != RATE_STEP;

    if (to_steps(&r->warmup, "warmup", steps_per_epoch, err) < 0 ||
        to_steps(&r->every, "lr-every", steps_per_epoch, err) < 0 ||
        to_steps(&r->length, "lr-length", steps_per_epoch, err) < 0)
        return -1;
    if (!r->length.n)
        r->length.n = total_steps;
    if (r->final < 0)
        r->final = r->schedule == RATE_ONE_CYCLE ? 1.0 / 25 / 1e4 : 0;
    if (falls && r->warmup.n > r->length.n)
        return err_set_code(err, EXIT_USAGE, "--warmup: %lld steps, but --lr-schedule %s has "
                            "%lld (--lr-length)", (long long)r->warmup.n, names[r->schedule],
                            (long long)r->length.n);
    return 0;
}

struct rate recipe_rate(const struct recipe *recipe)
{
    return (struct rate){ .kind = recipe->schedule, .warmup = recipe->warmup.n,
                          .every = recipe->every.n, .length = recipe->length.n,
                          .factor = recipe->factor, .final = recipe->final };
}

json_t *recipe_to_json(const struct recipe *recipe)
{
    const struct recipe *r = recipe;
    json_t *patterns = json_array();

    for (int i = 0; i < r->n_no_decay; i++)
        json_array_append_new(patterns, json_string(r->no_decay[i]));
    return json_pack("{s:s, s:I, s:I, s:f, s:I, s:f, s:f, s:f, s:f, s:o}", "lr_schedule",
                     names[r->schedule], "warmup", (json_int_t)r->warmup.n, "lr_every",
                     (json_int_t)r->every.n, "lr_factor", r->factor, "lr_length",
                     (json_int_t)r->length.n, "lr_final", r->final, "clip_norm", r->clip,
                     "label_smoothing", r->label_smoothing, "ema", r->ema, "no_decay",
                     patterns);
}

static int read_patterns(struct recipe *r, const struct json_reader *reader,
                         const json_t *list, const char ***patterns, struct err *err)
{
    const char **found = mem_new(json_array_size(list), sizeof(*found));

    *patterns = found;
    r->no_decay = found;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);

        if (!json_is_string(item))
            return json_error(reader, "no_decay", err,
                              "expected names or patterns, which are strings");
        found[r->n_no_decay++] = json_string_value(item);
    }
    return 0;
}

int recipe_from_json(struct recipe *recipe, struct json_reader *top, const char ***patterns,
                     struct err *err)
{
    struct recipe *r = recipe;
    struct json_reader o;
    const json_t *object, *list;
    const char *name;
    size_t kind = 0;

    *patterns = NULL;
    *r = recipe_defaults();
    if (json_get_object(top, "recipe", false, &object, err) < 0)
        return -1;
    if (!object)
        return 0;
    if (json_reader_sub(&o, top, "recipe", -1, object, err) < 0 ||
        json_get_string(&o, "lr_schedule", true, NULL, &name, err) < 0 ||
        json_get_int(&o, "warmup", 0, INT64_MAX / 2, NULL, &r->warmup.n, err) < 0 ||
        json_get_int(&o, "lr_every", 1, INT64_MAX / 2, NULL, &r->every.n, err) < 0 ||
        json_get_number(&o, "lr_factor", 0, 1e30, NULL, &r->factor, err) < 0 ||
        json_get_int(&o, "lr_length", 1, INT64_MAX / 2, NULL, &r->length.n, err) < 0 ||
        json_get_number(&o, "lr_final", 0, 1e30, NULL, &r->final, err) < 0 ||
        json_get_number(&o, "clip_norm", 0, 1e30, NULL, &r->clip, err) < 0 ||
        json_get_number(&o, "label_smoothing", 0, 1, NULL, &r->label_smoothing, err) < 0 ||
        json_get_number(&o, "ema", 0, 1, NULL, &r->ema, err) < 0 ||
        json_get_array(&o, "no_decay", true, &list, err) < 0 || json_reader_end(&o, err) < 0)
        return -1;
    r->every.epochs = false;
    while (kind < sizeof(names) / sizeof(names[0]) && strcmp(names[kind], name) != 0)
        kind++;
    if (kind == sizeof(names) / sizeof(names[0]))
        return json_error(&o, "lr_schedule", err, "\"%s\" is not known", name);
    r->schedule = (enum rate_kind)kind;
    return read_patterns(r, &o, list, patterns, err);
}
