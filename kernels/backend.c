/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "kernels/backend.h"

#include <string.h>

#include "kernels/cuda/cuda.h"
#ifdef HAVE_DNNL
#include "kernels/cpu/backend_cpu.h"
#endif

static const struct backend *const backends[] = {
    &reference_backend,
    &backend_cuda,
#ifdef HAVE_DNNL
    &backend_cpu,
#endif
};

bool backend_narrows(const struct graph *graph, int node, int operand)
{
    int inputs = graph->nodes[node].n_inputs;

    return operand < inputs ? cuda_narrows_input(graph, node, operand)
                            : cuda_narrows_output(graph, node, operand - inputs);
}

const struct backend *backend_find(const char *name)
{
    size_t i;

    for (i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    if (strcmp(name, "cuda-bf16") == 0)
        return cuda_bf16();
    if (strcmp(name, "cuda-fp16") == 0)
        return cuda_fp16();
    return strcmp(name, "cuda-tf32") == 0 ? cuda_tf32() : NULL;
}
