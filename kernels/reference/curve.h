/* SPDX-License-Identifier: MIT */
/* Functions of one number with up to two parameters, and their slopes, in double. */
#ifndef TASUKI_KERNELS_REFERENCE_CURVE_H
#define TASUKI_KERNELS_REFERENCE_CURVE_H

/* f(x), and what dy is multiplied by: of x, but of y for the reciprocal. At a kink the slope is
 * PyTorch's. 'a' and 'b' are the attributes alpha and beta; of a Clip min and max.
 */
#define CURVE(NAME)                                            \
    double curve_##NAME(double x, double a, double b);         \
    double curve_##NAME##_slope(double x, double a, double b)

CURVE(abs);
CURVE(reciprocal);
CURVE(sin);
CURVE(cos);
CURVE(leaky_relu);
CURVE(elu);
CURVE(celu);
CURVE(selu);
CURVE(softplus);
CURVE(softsign);
CURVE(hard_sigmoid);
CURVE(hard_swish);
CURVE(swish);
CURVE(mish);
CURVE(clip);

#undef CURVE

double curve_sign(double x);

/* Of two numbers. A NaN wins. */
double pair_max(double a, double b, double c);
double pair_min(double a, double b, double c);
double pair_max_grad(double dy, double a, double b);    /* of a */
double pair_min_grad(double dy, double a, double b);
double pair_prelu(double x, double slope, double c);
double pair_prelu_grad(double dy, double x, double slope);
double pair_prelu_slope_grad(double dy, double x, double c);
double pair_fmod(double a, double b, double c);

#endif
