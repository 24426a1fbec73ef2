/* SPDX-License-Identifier: MIT */
#include "commands.h"

#include <stddef.h>

/* In the order of --help: those that everybody needs come first. */
const struct command commands[] = {
    { "topo", cmd_topo, "what is here: nodes, GPUs, NICs, links",
      COMMAND_TOPO, "topo [OPTION]..." },
    { "info", cmd_info, "version, what was built in, modules found, settings",
      COMMAND_INFO, "info [OPTION]..." },
    { NULL, NULL, NULL, 0, NULL },
};
