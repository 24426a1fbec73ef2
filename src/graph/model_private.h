/* SPDX-License-Identifier: MIT */
/* For model.c and export.c. */
#ifndef TASUKI_GRAPH_MODEL_PRIVATE_H
#define TASUKI_GRAPH_MODEL_PRIVATE_H

#include "graph/model.h"
#include "graph/onnx.h"

struct model {
    struct onnx *onnx;
    int n_notes, n_unsupported;
    char **notes;
    struct model_unsupported *unsupported;
};

#endif
