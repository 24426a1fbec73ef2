/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "train/session.h"

void stepper_init(struct stepper *stepper, const struct session *session)
{
    *stepper = (struct stepper){ .flows = false };
    for (int i = 0; i < 2; i++)
        stepper->batches[i].samples =
            mem_new((size_t)session->settings.global_batch, sizeof(int64_t));
}

void stepper_clear(struct stepper *stepper)
{
    for (int i = 0; i < 2; i++)
        free(stepper->batches[i].samples);
    *stepper = (struct stepper){ .flows = false };
}

static void find_batch(struct session *s, int64_t step, struct step_batch *batch)
{
    int64_t n = s->settings.global_batch;

    memcpy(batch->samples, sampler_step(&s->sampler, step), (size_t)n * sizeof(int64_t));
    batch->weight_sum = labels_weight(&s->train.labels, batch->samples, n);
    batch->count = s->rank == 0 && s->classifies
                       ? labels_count(&s->train.labels, batch->samples, n) : 0;
}

static struct batch_args args_of(const struct session *s, int64_t step,
                                 const struct step_batch *batch)
{
    return (struct batch_args){
        .reader = s->train.reader, .prefetch = s->prefetch, .tensors = s->train.tensors,
        .samples = batch->samples, .step = step, .epoch = sampler_epoch(&s->sampler, step),
        .weight_sum = batch->weight_sum, .rate = rate_at(&s->rate, step),
    };
}

int session_step(struct session *session, struct stepper *stepper, int64_t step, bool flows,
                 struct batch_result *result, struct err *err)
{
    struct session *s = session;
    struct step_batch *batch = &stepper->batches[step % 2];
    struct step_batch *ahead = &stepper->batches[(step + 1) % 2];
    struct batch_args args, next;

    *result = (struct batch_result){ 0 };
    if (!stepper->flows)
        find_batch(s, step, batch);
    if (flows)
        find_batch(s, step + 1, ahead);
    stepper->flows = flows;
    args = args_of(s, step, batch);
    next = args_of(s, step + 1, ahead);
    return s->runner ? runner_step(s->runner, &args, flows ? &next : NULL, result, err) : 0;
}
