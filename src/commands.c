/* SPDX-License-Identifier: MIT */
#include "commands.h"

#include <stddef.h>

const struct command commands[] = {
    { NULL, NULL, NULL },
};
