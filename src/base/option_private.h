/* SPDX-License-Identifier: MIT */
/* What the option_*.c files share. */
#ifndef TASUKI_BASE_OPTION_PRIVATE_H
#define TASUKI_BASE_OPTION_PRIVATE_H

#include "base/option.h"

struct setting {
    const struct option_spec *spec;
    enum option_origin origin;
    char *where;        /* "--lr", "TASUKI_LR", "/etc/tasuki/tasuki.conf:3: lr" */
    int n;
    const char **values;    /* own copies; flags are "yes" or "no" */
};

struct options {
    enum command_id command;
    int n_settings;
    struct setting *settings;
    int n_operands;
    const char **operands;
    int n_rest;
    char *const *rest;      /* of argv */
};

/* The entry of this name that the command takes; NULL: none. */
const struct option_spec *option_find(unsigned command, const char *name);
/* "GLOBAL_BATCH" for "global-batch", behind TASUKI_. */
void option_variable(const char *name, char variable[64]);
const struct setting *option_setting(const struct options *options, const char *name);

#endif
