/* SPDX-License-Identifier: MIT */
#include "commands.h"

#include <stddef.h>

/* In the order of --help: those that everybody needs come first. */
const struct command commands[] = {
    { "topo", cmd_topo, "what is here: nodes, GPUs, NICs, links",
      COMMAND_TOPO, "topo [OPTION]..." },
    { "inspect", cmd_inspect, "a model: parameters, FLOPs, memory, what is not supported",
      COMMAND_INSPECT, "inspect [OPTION]... MODEL" },
    { "info", cmd_info, "version, what was built in, modules found, settings",
      COMMAND_INFO, "info [OPTION]..." },
    { NULL, NULL, NULL, 0, NULL },
};
