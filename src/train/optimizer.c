/* SPDX-License-Identifier: MIT */
#include "train/optimizer.h"

#include <string.h>

#include "base/err.h"

static const struct rule {
    const char *name;
    int states;
} rules[] = {
    [OPTIMIZER_SGD] = { "sgd", 0 },
    [OPTIMIZER_MOMENTUM] = { "momentum", 1 },
    [OPTIMIZER_NESTEROV] = { "nesterov", 1 },
    [OPTIMIZER_ADAM] = { "adam", 2 },
    [OPTIMIZER_ADAMW] = { "adamw", 2 },
};

int optimizer_from_name(const char *name, enum optimizer_kind *kind, struct err *err)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (strcmp(rules[i].name, name) == 0) {
            *kind = (enum optimizer_kind)i;
            return 0;
        }
    }
    return err_set_code(err, EXIT_USAGE,
                        "optimizer \"%s\": expected sgd, momentum, nesterov, adam or adamw",
                        name);
}

const char *optimizer_name(enum optimizer_kind kind)
{
    return rules[kind].name;
}

int optimizer_states(enum optimizer_kind kind)
{
    return rules[kind].states;
}

struct optimizer_args optimizer_defaults(enum optimizer_kind kind)
{
    bool adam = optimizer_states(kind) == 2;

    return (struct optimizer_args){
        .kind = kind, .lr = adam ? 0.001 : 0.01, .momentum = 0.9, .beta1 = 0.9,
        .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = kind == OPTIMIZER_ADAMW ? 0.01 : 0,
    };
}
