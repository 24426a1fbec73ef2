/* SPDX-License-Identifier: MIT */
#include "kernels/reference/scalar.h"

#include <math.h>

#define TANH_A 0.79788456080286535588   /* sqrt(2 / pi) */
#define TANH_B 0.044715

double scalar_relu(double x)
{
    /* A NaN stays one, as in PyTorch. */
    return x <= 0 ? 0 : x;
}

double scalar_neg(double x)
{
    return -x;
}

double scalar_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

double scalar_gelu(double x)
{
    return 0.5 * x * (1 + erf(x * M_SQRT1_2));
}

double scalar_gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(TANH_A * (x + TANH_B * x * x * x)));
}

double scalar_add(double a, double b, double c)
{
    return a + b + c;
}

double scalar_sub(double a, double b, double c)
{
    (void)c;
    return a - b;
}

double scalar_mul(double a, double b, double c)
{
    (void)c;
    return a * b;
}

double scalar_div(double a, double b, double c)
{
    (void)c;
    return a / b;
}

double scalar_pow(double a, double b, double c)
{
    (void)c;
    return pow(a, b);
}

double scalar_square_difference(double a, double b, double c)
{
    (void)c;
    return (a - b) * (a - b);
}

double scalar_twice_difference(double a, double b, double c)
{
    (void)c;
    return 2 * (a - b);
}

double scalar_relu_grad(double dy, double y, double c)
{
    (void)c;
    return y > 0 ? dy : 0;
}

double scalar_tanh_grad(double dy, double y, double c)
{
    (void)c;
    return dy * (1 - y * y);
}

double scalar_sigmoid_grad(double dy, double y, double c)
{
    (void)c;
    return dy * y * (1 - y);
}

double scalar_sqrt_grad(double dy, double y, double c)
{
    (void)c;
    return dy * 0.5 / y;
}

double scalar_erf_grad(double dy, double x, double c)
{
    (void)c;
    return dy * M_2_SQRTPI * exp(-x * x);
}

double scalar_gelu_grad(double dy, double x, double c)
{
    double density = exp(-0.5 * x * x) * (0.5 * M_SQRT1_2 * M_2_SQRTPI);

    (void)c;
    return dy * (0.5 * (1 + erf(x * M_SQRT1_2)) + x * density);
}

double scalar_gelu_tanh_grad(double dy, double x, double c)
{
    double t = tanh(TANH_A * (x + TANH_B * x * x * x));
    double slope = TANH_A * (1 + 3 * TANH_B * x * x);

    (void)c;
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope);
}

double scalar_div_grad(double dy, double y, double b)
{
    return -dy * y / b;
}

double scalar_pow_grad(double dy, double a, double e)
{
    return e == 0 ? 0 : dy * e * pow(a, e - 1);
}

double scalar_pow_exponent_grad(double dy, double a, double y)
{
    /* The limit at a = 0, e > 0; PyTorch has the same. */
    return a == 0 ? 0 : dy * y * log(a);
}
