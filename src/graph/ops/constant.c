/* SPDX-License-Identifier: MIT */
/* What the reader knows but never hands over: it folds these to constants, or writes them as
 * Reshape (op.h).
 */
#include "graph/ops/ops.h"

#define FOLDED(NAME) { .name = NAME, .flags = OP_FOLD | OP_NO_GRAD, 0, -1, 1, 1 }

const struct op ops_constant[] = {
    FOLDED("Constant"), FOLDED("ConstantOfShape"), FOLDED("Shape"), FOLDED("Size"),
    FOLDED("Range"), FOLDED("Identity"), FOLDED("Flatten"), FOLDED("Squeeze"),
    FOLDED("Unsqueeze"), FOLDED("NonZero"),
    { .name = NULL },
};
