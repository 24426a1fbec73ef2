/* SPDX-License-Identifier: MIT */
/* The pointwise operators on one number, in double. */
#ifndef TASUKI_KERNELS_REFERENCE_SCALAR_H
#define TASUKI_KERNELS_REFERENCE_SCALAR_H

double scalar_relu(double x);
double scalar_neg(double x);
double scalar_sigmoid(double x);
double scalar_gelu(double x);
double scalar_gelu_tanh(double x);

double scalar_add(double a, double b, double c);
double scalar_sub(double a, double b, double c);
double scalar_mul(double a, double b, double c);
double scalar_div(double a, double b, double c);
double scalar_pow(double a, double b, double c);

double scalar_square_difference(double a, double b, double c);
double scalar_twice_difference(double a, double b, double c);

/* Gradients: dy and what the operator's line in graph/ops/ops.h says. */
double scalar_relu_grad(double dy, double y, double c);
double scalar_tanh_grad(double dy, double y, double c);
double scalar_sigmoid_grad(double dy, double y, double c);
double scalar_sqrt_grad(double dy, double y, double c);
double scalar_erf_grad(double dy, double x, double c);
double scalar_gelu_grad(double dy, double x, double c);
double scalar_gelu_tanh_grad(double dy, double x, double c);
double scalar_div_grad(double dy, double y, double b);
double scalar_pow_grad(double dy, double a, double e);
double scalar_pow_exponent_grad(double dy, double a, double y);

#endif
