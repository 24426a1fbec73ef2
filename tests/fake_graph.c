/* SPDX-License-Identifier: MIT */
/* The stand-in's CUDA graphs: of what one stream is handed, in order. What a capture refuses ends
 * it: calls that wait, allocate, ask events or use the stream of all, and copies from or to memory
 * that is not pinned. More than CUDA does it refuses events, which the program does not record in
 * graphs.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fake_private.h"

struct CUgraph_st {
    struct step *first;
    bool spoiled;
};

struct CUgraphExec_st {
    struct step *first;
};

static __thread struct CUstream_st *capturing;   /* one at a time */
static int left;                        /* graphs that were made and not destroyed */

int fake_graphs_left(void)
{
    return left;
}

static void free_steps(struct step *s)
{
    while (s) {
        struct step *next = s->next;

        free(s->own);
        free(s);
        s = next;
    }
}

/* Own, and in 'own' at the same offset. */
static struct step *copy_of(const struct step *s)
{
    struct step *copy = malloc(sizeof(*copy));

    *copy = *s;
    copy->next = NULL;
    if (s->own) {
        copy->own = malloc(s->own_bytes);
        memcpy(copy->own, s->own, s->own_bytes);
        if (s->from == s->own)
            copy->from = copy->own;
    }
    return copy;
}

struct step **fake_captured(struct CUstream_st *stream)
{
    return stream && stream->capture ? &stream->capture->first : NULL;
}

bool fake_refuses_in_capture(void)
{
    if (!capturing)
        return false;
    capturing->capture->spoiled = fake.failed = true;
    return true;
}

bool fake_captures(struct CUstream_st *stream)
{
    return stream && stream->capture;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    MAY_FAIL(cudaError_t);
    if (!stream || capturing || mode != cudaStreamCaptureModeThreadLocal)
        return cudaErrorStreamCaptureUnsupported;
    capturing = stream;
    stream->capture = calloc(1, sizeof(*stream->capture));
    left++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    struct CUgraph_st *made = stream->capture;

    MAY_FAIL(cudaError_t);
    if (!made)
        return cudaErrorIllegalState;
    stream->capture = NULL;
    capturing = NULL;
    if (made->spoiled) {
        (void)cudaGraphDestroy(made);
        return cudaErrorStreamCaptureInvalidated;
    }
    *graph = made;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    ALONE;

    free_steps(graph->first);
    free(graph);
    left--;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph,
                                          unsigned long long flags)
{
    struct step **end;

    MAY_FAIL(cudaError_t);
    if (flags)
        return cudaErrorInvalidValue;
    *made = calloc(1, sizeof(**made));
    left++;
    end = &(*made)->first;
    for (const struct step *s = graph->first; s; s = s->next, end = &(*end)->next)
        *end = copy_of(s);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    ALONE;

    if (fake_mutates("keep-graph"))
        return cudaSuccess;
    free_steps(graph->first);
    free(graph);
    left--;
    return cudaSuccess;
}

/* What the program says of memory is no work. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    bool skips;

    MAY_FAIL(cudaError_t);
    if (!stream || fake_captures(stream))
        return cudaErrorStreamCaptureUnsupported;
    if (fake_mutates("skip-launch"))
        return cudaSuccess;
    skips = fake_mutates("skip-graph");
    stream = fake_mutates("swap-graph") ? fake_other_stream(stream) : stream;
    for (const struct step *s = graph->first; s; s = s->next)
        if (!skips || s->kind == FORGET || s->kind == RENEW)
            fake_append(stream, copy_of(s));
    fake_stir();
    return cudaSuccess;
}
