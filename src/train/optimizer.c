/* SPDX-License-Identifier: MIT */
#include "train/optimizer.h"

#include <string.h>

static const struct rule {
    const char *name;
    int states;
} rules[] = {
    [OPTIMIZER_SGD] = { "sgd", 0 },
    [OPTIMIZER_MOMENTUM] = { "momentum", 1 },
    [OPTIMIZER_NESTEROV] = { "nesterov", 1 },
    [OPTIMIZER_ADAM] = { "adam", 2 },
    [OPTIMIZER_ADAMW] = { "adamw", 2 },
    [OPTIMIZER_LARS] = { "lars", 1 },
    [OPTIMIZER_LAMB] = { "lamb", 2 },
};

int optimizer_from_name(const char *name, enum optimizer_kind *kind)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (strcmp(rules[i].name, name) == 0) {
            *kind = (enum optimizer_kind)i;
            return 0;
        }
    }
    return -1;
}

const char *optimizer_name(enum optimizer_kind kind)
{
    return rules[kind].name;
}

int optimizer_states(enum optimizer_kind kind)
{
    return rules[kind].states;
}

int optimizer_resident(enum optimizer_kind kind, bool averaged, bool offload)
{
    return (offload ? 0 : optimizer_states(kind)) + averaged;
}

struct optimizer_args optimizer_defaults(enum optimizer_kind kind)
{
    bool adam = optimizer_states(kind) == 2, lamb = kind == OPTIMIZER_LAMB;

    return (struct optimizer_args){
        .kind = kind, .lr = adam ? 0.001 : 0.01, .momentum = 0.9, .beta1 = 0.9,
        .beta2 = 0.999, .epsilon = lamb ? 1e-6 : 1e-8,
        .weight_decay = kind == OPTIMIZER_ADAMW || lamb ? 0.01 : 0, .trust = 0.001,
    };
}

json_t *optimizer_to_json(const struct optimizer_args *args)
{
    const struct optimizer_args *o = args;

    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "name",
                     optimizer_name(o->kind), "lr", o->lr, "momentum", o->momentum, "beta1",
                     o->beta1, "beta2", o->beta2, "epsilon", o->epsilon, "weight_decay",
                     o->weight_decay, "trust_coefficient", o->trust);
}

void optimizer_resume(struct optimizer_args *args, const struct optimizer_given *given,
                      const struct optimizer_args *saved)
{
    if (given->kind && args->kind != saved->kind)
        return;
    args->kind = saved->kind;
    args->lr = given->lr ? args->lr : saved->lr;
    args->momentum = given->momentum ? args->momentum : saved->momentum;
    args->beta1 = given->beta1 ? args->beta1 : saved->beta1;
    args->beta2 = given->beta2 ? args->beta2 : saved->beta2;
    args->epsilon = given->epsilon ? args->epsilon : saved->epsilon;
    args->weight_decay = given->weight_decay ? args->weight_decay : saved->weight_decay;
    args->trust = given->trust ? args->trust : saved->trust;
}
