/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "train/session.h"

static int evaluate_batch(struct session *s, const struct batch_args *args, double scale,
                          double entries[BOARD_COUNT], struct err *err)
{
    struct batch_result result;

    if (!s->runner)
        return 0;
    if (runner_evaluate(s->runner, args, &result, err) < 0)
        return -1;
    entries[BOARD_LOSS] += scale * result.loss;
    entries[BOARD_CORRECT] += scale * result.correct;
    return 0;
}

/* What the first sample of the last batch adds by completing it is measured by the batch of nothing
 * else, and taken off: in use, samples do not depend on each other.
 */
static int evaluate_all(struct session *s, double entries[BOARD_COUNT], struct err *err)
{
    int64_t b = s->settings.global_batch, n = data_samples(s->test.data);
    struct batch_args args = { .reader = s->test.reader, .tensors = s->test.tensors,
                               .weight_sum = 1 };
    struct prefetch **prefetch = NULL;
    struct sampler order = { 0 };
    int bad = sampler_init_whole(&order, n, b, err);

    if (!bad)
        bad = session_prefetch(s, &s->test, &order, 0, order.steps_per_epoch, &prefetch, err);
    args.prefetch = prefetch;
    for (int64_t i = 0; i < order.steps_per_epoch && !bad; i++) {
        args.samples = sampler_step(&order, i);
        bad = evaluate_batch(s, &args, i * b < n ? 1 : -(double)(b - n % b) / (double)b,
                             entries, err);
    }
    session_prefetch_free(s, prefetch);
    sampler_clear(&order);
    return bad;
}

/* What the sum of losses is divided by, and how many labels count. */
static double test_weight(const struct session *s, int64_t *count)
{
    int64_t n = data_samples(s->test.data);
    double weight = 0;

    *count = 0;
    for (int64_t i = 0; i < n; i++) {
        weight += s->test.labels.rule.weight == LOSS_WEIGHT_ONE
                      ? 1.0 / (double)s->settings.global_batch
                      : labels_weight(&s->test.labels, &i, 1);
        *count += labels_count(&s->test.labels, &i, 1);
    }
    return weight;
}

static bool counts_tokens(const struct session *s)
{
    return s->classifies && s->test.labels.per_sample > 1;
}

static void tell(struct session *s, int64_t steps_done, double seconds,
                 const struct evaluation *e)
{
    json_t *line = json_pack("{s:s, s:I, s:o, s:I, s:b, s:f}", "event", "evaluation", "step",
                             (json_int_t)steps_done, "loss", session_number(e->loss),
                             "samples", (json_int_t)data_samples(s->test.data), "ema",
                             s->settings.eval_ema, "seconds", seconds);
    char accuracy[64] = "", perplexity[64] = "";

    if (s->classifies) {
        json_object_set_new(line, "accuracy", session_number(e->accuracy));
        snprintf(accuracy, sizeof(accuracy), ", accuracy %.2f %%", 100 * e->accuracy);
    }
    if (counts_tokens(s)) {
        json_object_set_new(line, "perplexity", session_number(exp(e->loss)));
        snprintf(perplexity, sizeof(perplexity), ", perplexity %.4g", exp(e->loss));
    }
    session_log(s, line);
    if (s->rank == 0)
        log_info("step %lld: test loss %.*g%s%s", (long long)steps_done, s->classifies ? 4 : 6,
                 e->loss, accuracy, perplexity);
}

/* A directory of its own, in which the newest is the best. */
static int keep_best(struct session *s, int64_t steps_done, const struct evaluation *e,
                     struct err *err)
{
    bool by_accuracy = s->settings.best == BEST_ACCURACY;
    double value = by_accuracy ? e->accuracy : e->loss;
    char *directory;
    int bad;

    if (s->settings.best == BEST_NONE || !isfinite(value) ||
        (s->best.step > 0 && (by_accuracy ? value <= s->best.value : value >= s->best.value)))
        return 0;
    s->best = (struct checkpoint_best){ .by = s->settings.best, .value = value,
                                        .step = steps_done };
    directory = mem_printf("%s/best", s->settings.checkpoint);
    bad = session_save(s, directory, CHECKPOINT_KEEP_ONLY, steps_done, err);
    free(directory);
    return bad;
}

int session_evaluate(struct session *session, int64_t steps_done, struct err *err)
{
    struct session *s = session;
    double entries[BOARD_COUNT] = { 0 }, start = trace_clock();
    bool averages = s->settings.eval_ema && s->runner;
    struct evaluation result;
    int64_t count;

    if ((averages && runner_average(s->runner, true, err) < 0) ||
        evaluate_all(s, entries, err) < 0 || board_post(&s->board, entries, err) < 0 ||
        board_read(&s->board, entries, err) < 0 ||
        (averages && runner_average(s->runner, false, err) < 0))
        return -1;
    result.loss = entries[BOARD_LOSS] / test_weight(s, &count);
    result.accuracy = count > 0 ? entries[BOARD_CORRECT] / (double)count : 0;
    s->metrics.test_loss = result.loss;
    s->metrics.test_accuracy = s->classifies ? result.accuracy : NAN;
    s->evaluated = trace_clock() - start;
    tell(s, steps_done, s->evaluated, &result);
    return keep_best(s, steps_done, &result, err);
}

void session_tell_best(const struct session *session)
{
    const struct session *s = session;

    if (s->rank == 0 && s->best.step > 0)
        log_info("best: test %s %.4g at step %lld, in %s/best",
                 s->best.by == BEST_ACCURACY ? "accuracy" : "loss", s->best.value,
                 (long long)s->best.step, s->settings.checkpoint);
}
