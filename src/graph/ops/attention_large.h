/* SPDX-License-Identifier: MIT */
#ifndef TASUKI_GRAPH_ATTENTION_LARGE_H
#define TASUKI_GRAPH_ATTENTION_LARGE_H

/* Beyond it the logarithm of a sum of exponentials has lost a thousandth in float32: gradients
 * take the sum again.
 */
#define ATTENTION_LARGE 1e4

#endif
