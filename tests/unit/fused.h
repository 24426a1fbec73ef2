/* SPDX-License-Identifier: MIT */
/* A fused graph computes what the unfused one does: loss and every gradient, in double and in
 * float.
 */
#ifndef TASUKI_TESTS_FUSED_H
#define TASUKI_TESTS_FUSED_H

#include <stdint.h>

/* What a network gives: the loss, and gradients by name of the parameter. */
struct outcome {
    double loss;
    int n_params, n_nodes;
    char **names;
    int64_t *sizes;
    double **gradients;
    char ops[2048];         /* " Linear Gelu …" of the forward graph */
};

#define MSE "mse:y,target"
/* Sums of some hundred terms in another order. */
#define SAME 1e-12
/* Constants such as 1/sqrt(2) are rounded to float32 in the unfused form. */
#define ROUNDED 1e-6

/* For cmocka_run_group_tests(). */
int setup(void **state);
int teardown(void **state);

/* Both ways agree within 'tolerance', relative, and in float; 'ops' of the fused graph are
 * returned.
 */
struct outcome agree(const char *text, const char *loss, double tolerance);

#endif
