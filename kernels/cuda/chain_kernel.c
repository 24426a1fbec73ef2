/* SPDX-License-Identifier: MIT */
/* Kernels of chains: compiled once for each text, kept by the device and in the cache, and launched. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "graph/graph.h"
#include "kernels/cuda/chain.h"
#include "kernels/cuda/kept.h"

/* chain.cuh and what it includes, line by line; the build makes it. */
static const char *const common[] = {
#include "kernels/cuda/chain_common.h"
};

struct cuda_chains {
    int n;
    struct made {
        char *text;
        struct cuda_chain_kernel *kernel;
    } *made;
};

char *chain_whole(const char *text)
{
    size_t n = sizeof(common) / sizeof(common[0]), bytes = strlen(text) + 1;
    char *whole, *end;

    for (size_t i = 0; i < n; i++)
        bytes += strlen(common[i]);
    end = whole = mem_new(bytes, 1);
    for (size_t i = 0; i < n; i++)
        end = stpcpy(end, common[i]);
    stpcpy(end, text);
    return whole;
}

struct loading {
    struct device *device;
    struct cuda_chain_kernel *kernel;
};

static bool load(void *context, const void *code, size_t bytes)
{
    struct loading *l = context;
    struct err ignored = { 0 };

    l->kernel = l->device->cuda->chain_new(l->device->gpu, code, bytes, &ignored);
    return l->kernel != NULL;
}

static struct cuda_chain_kernel *make(struct device *device, const char *text, struct err *err)
{
    char *whole = chain_whole(text), *path = cuda_kept_path(device, "chain", whole, ".cubin");
    struct loading l = { device, NULL };
    size_t bytes;
    void *code;

    if (!cuda_kept_find(path, load, &l) &&
        (code = device->cuda->chain_compile(device->gpu, whole, &bytes, err))) {
        l.kernel = device->cuda->chain_new(device->gpu, code, bytes, err);
        if (l.kernel && path)
            cuda_kept_put(path, code, bytes);
        free(code);
    }
    free(path);
    free(whole);
    return l.kernel;
}

struct cuda_chain_kernel *cuda_chain_kernel(struct device *device, const char *text, struct err *err)
{
    struct cuda_chain_kernel *kernel;
    struct made *made;

    if (!device->chains)
        device->chains = mem_new(1, sizeof(*device->chains));
    for (int i = 0; i < device->chains->n; i++)
        if (strcmp(device->chains->made[i].text, text) == 0)
            return device->chains->made[i].kernel;
    kernel = make(device, text, err);
    if (!kernel)
        return NULL;
    made = mem_push((void **)&device->chains->made, &device->chains->n, sizeof(*made));
    made->text = mem_strdup(text);
    made->kernel = kernel;
    return kernel;
}

void cuda_chains_close(struct device *device)
{
    struct cuda_chains *c = device->chains;

    if (!c)
        return;
    if (c->n)
        log_debug("cuda: %d kernel%s of chains", c->n, c->n == 1 ? "" : "s");
    for (int i = 0; i < c->n; i++) {
        device->cuda->chain_free(c->made[i].kernel);
        free(c->made[i].text);
    }
    free(c->made);
    free(c);
}

/* The operator ------------------------------------------------------------------------------ */

static int run(const struct cuda_kernel *k, struct stream *stream, const struct kernel_args *args,
               struct err *err)
{
    struct cuda_chain l = k->launch.chain;

    for (int i = 0; i < k->digest->n_inputs; i++)
        l.in[i] = args->inputs[i];
    l.out = args->outputs[0];
    l.add = args->accumulate == ACCUMULATE_YES;
    return l.elements ? k->device->cuda->chain(stream->cuda, k->chain, &l, err) : 0;
}

static int make_chain(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const char *text = node_string(&graph->nodes[node], "text", NULL);

    k->chain = text && k->digest->n_inputs <= CUDA_CHAIN_INPUTS
                   ? cuda_chain_kernel(k->device, text, k->err) : NULL;
    if (!k->chain) {
        k->failed = true;
        return -1;
    }
    k->launch.chain.elements = k->digest->out[0].elements;
    k->run = run;
    k->accumulates = true;
    return 0;
}

const struct cuda_op cuda_ops_chain[] = {
    { "Chain", make_chain, 0 },
    { NULL, NULL, 0 },
};
