/* SPDX-License-Identifier: MIT */
/* Which initializers stay as they are: --freeze PATTERN, and what the exporter says. */
#ifndef TASUKI_GRAPH_FREEZE_H
#define TASUKI_GRAPH_FREEZE_H

#include <stdbool.h>

#include "graph/onnx.h"

struct err;

enum freeze {
    FREEZE_NOT,
    FREEZE_EXPORTER,    /* a buffer or a constant of the module */
    FREEZE_SUBGRAPH,    /* of a branch or a loop: no parameter stands there */
    FREEZE_ASKED
};

/* Is it named? One answer for each initializer, for free(). Patterns are those of the shell ("*",
 * "?", "[...]"); a name matches itself, and what an exporter computed from that parameter. A
 * transposed copy and its original are one. NULL where a pattern matches no initializer: the
 * error has the option that the patterns are from, and the nearest name.
 */
bool *freeze_match(const struct onnx *onnx, const char *option, int n,
                   const char *const *patterns, struct err *err);

/* The same for --freeze, and what the exporter says. */
enum freeze *freeze_resolve(const struct onnx *onnx, int n, const char *const *patterns,
                            struct err *err);

#endif
