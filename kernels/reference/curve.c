/* SPDX-License-Identifier: MIT */
#include "kernels/reference/curve.h"

#include <math.h>

#define CURVE(NAME, VALUE, SLOPE)                                    \
    double curve_##NAME(double x, double a, double b)                \
    {                                                                \
        (void)a, (void)b;                                            \
        return (VALUE);                                              \
    }                                                                \
    double curve_##NAME##_slope(double x, double a, double b)        \
    {                                                                \
        (void)x, (void)a, (void)b;                                   \
        return (SLOPE);                                              \
    }

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

static double soft(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double swish_slope(double x, double a)
{
    double s = logistic(a * x);

    return s + a * x * s * (1 - s);
}

static double mish_slope(double x)
{
    double t = tanh(soft(x));

    return t + x * (1 - t * t) * logistic(x);
}

static double clip(double x, double low, double high)
{
    /* Where the bounds are crossed the upper one holds; a NaN stays one. */
    x = x < low ? low : x;
    return x > high ? high : x;
}

CURVE(abs, fabs(x), (x > 0) - (x < 0))
CURVE(reciprocal, 1 / x, -x * x)
CURVE(sin, sin(x), cos(x))
CURVE(cos, cos(x), -sin(x))
CURVE(leaky_relu, x < 0 ? a * x : x, x > 0 ? 1 : a)
CURVE(elu, x <= 0 ? a * expm1(x) : x, x <= 0 ? a * exp(x) : 1)
CURVE(celu, x <= 0 ? a * expm1(x / a) : x, x <= 0 ? exp(x / a) : 1)
CURVE(selu, b * (x <= 0 ? a * expm1(x) : x), b * (x <= 0 ? a * exp(x) : 1))
CURVE(softplus, soft(x), logistic(x))
CURVE(softsign, x / (1 + fabs(x)), 1 / ((1 + fabs(x)) * (1 + fabs(x))))
CURVE(hard_sigmoid, clip(a * x + b, 0, 1), a * x + b > 0 && a * x + b < 1 ? a : 0)
CURVE(hard_swish, x * clip(x / 6 + 0.5, 0, 1), x < -3 ? 0 : x <= 3 ? x / 3 + 0.5 : 1)
CURVE(swish, x * logistic(a * x), swish_slope(x, a))
CURVE(mish, x * tanh(soft(x)), mish_slope(x))
CURVE(clip, clip(x, a, b), x >= a && x <= b ? 1 : 0)

double curve_sign(double x)
{
    return isnan(x) ? x : (x > 0) - (x < 0);
}

double pair_max(double a, double b, double c)
{
    (void)c;
    return isnan(a) || a > b ? a : b;
}

double pair_min(double a, double b, double c)
{
    (void)c;
    return isnan(a) || a < b ? a : b;
}

double pair_max_grad(double dy, double a, double b)
{
    return a > b ? dy : a == b ? dy / 2 : 0;
}

double pair_min_grad(double dy, double a, double b)
{
    return a < b ? dy : a == b ? dy / 2 : 0;
}

double pair_prelu(double x, double slope, double c)
{
    (void)c;
    return x < 0 ? slope * x : x;
}

double pair_prelu_grad(double dy, double x, double slope)
{
    return x > 0 ? dy : dy * slope;
}

double pair_prelu_slope_grad(double dy, double x, double c)
{
    (void)c;
    return x < 0 ? dy * x : 0;
}

double pair_fmod(double a, double b, double c)
{
    (void)c;
    return fmod(a, b);
}
