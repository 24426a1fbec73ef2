/* SPDX-License-Identifier: MIT */
/* What the stand-ins of libraries on top of CUDA need of fake_cuda.c. */
#ifndef TASUKI_TESTS_FAKE_CUDA_H
#define TASUKI_TESTS_FAKE_CUDA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

/* Until the function returns, no other thread is in one that says so. */
#define ALONE __attribute__((cleanup(fake_let_go), unused)) int held_ = fake_hold()
int fake_hold(void);
void fake_let_go(const int *held);

/* call(a copy of the argument) when the stream gets there. */
void fake_enqueue(cudaStream_t stream, void (*call)(void *), const void *argument,
                  size_t bytes);
/* Are these bytes memory of the GPU that cudaMalloc() gave? */
bool fake_on_gpu(const void *data, size_t bytes);
/* The RESULT of a line "error CALL RESULT", once its good calls are over; 0: go on. */
int fake_planted(const char *call);

/* Of the library that has cuBLASLt's name. */
extern const char fake_cublaslt_name;

#endif
