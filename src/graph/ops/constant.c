/* SPDX-License-Identifier: MIT */
/* What the reader knows but never hands over: it folds these to constants, or writes them as
 * Reshape (op.h).
 */
#include "graph/ops/ops.h"

#define FOLDED(NAME) { .name = NAME, .flags = OP_FOLD | OP_NO_GRAD, 0, -1, 1, 1 }

const struct op ops_constant[] = {
    FOLDED("Constant"), FOLDED("ConstantOfShape"), FOLDED("Shape"), FOLDED("Size"),
    FOLDED("Range"), FOLDED("Equal"), FOLDED("Less"), FOLDED("LessOrEqual"),
    FOLDED("Greater"), FOLDED("GreaterOrEqual"), FOLDED("Not"), FOLDED("And"), FOLDED("Or"),
    FOLDED("Mod"), FOLDED("Min"), FOLDED("Max"), FOLDED("Floor"), FOLDED("Ceil"),
    FOLDED("Identity"), FOLDED("Flatten"), FOLDED("Squeeze"), FOLDED("Unsqueeze"),
    { .name = NULL },
};
