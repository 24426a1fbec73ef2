/* SPDX-License-Identifier: MIT */
/* All kernels of the type 'real', which f32.c and f64.c name before they include this. */
#include <math.h>

#include "base/err.h"
#include "kernels/philox.h"
#include "kernels/reference/curve.h"
#include "kernels/reference/reference.h"
#include "kernels/reference/scalar.h"

#include "kernels/reference/pointwise.inc.h"
#include "kernels/reference/matmul.inc.h"
#include "kernels/reference/conv.inc.h"
#include "kernels/reference/pool.inc.h"
#include "kernels/reference/norm.inc.h"
#include "kernels/reference/groupnorm.inc.h"
#include "kernels/reference/softmax.inc.h"
#include "kernels/reference/sum.inc.h"
#include "kernels/reference/attention.inc.h"
#include "kernels/reference/table.inc.h"
