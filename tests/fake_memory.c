/* SPDX-License-Identifier: MIT */
/* The stand-in's memory. New memory is NaN. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fake_private.h"

/* In strict mode GPUs' memory is one stretch of addresses, open only while a step is done; where
 * accesses are watched pinned memory is another. What is freed is used again once all is, and never
 * where it is watched.
 */
#define ARENA ((size_t)16 << 30)
#define HUGE_PAGE ((size_t)2 << 20)     /* opened and shut as one, where the system has them */

static struct arena {
    char *start;
    size_t used;
    int blocks;
} arenas[2];                            /* of GPUs, of the host */

bool fake_is_strict(void)
{
    static int known = -1;

    if (known < 0)
        known = getenv("TASUKI_FAKE_STRICT") != NULL;
    return known;
}

void fake_open_arena(bool open)
{
    const struct arena *a = &arenas[0];
    size_t before = (uintptr_t)a->start % HUGE_PAGE;
    size_t pages = ((before + a->used + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1)) - before;

    if (pages > ARENA)
        pages = ARENA;
    if (a->start && pages && mprotect(a->start, pages, open ? PROT_READ | PROT_WRITE : PROT_NONE))
        abort();
}

static bool has_arena(bool pinned)
{
    return fake_is_strict() && (!pinned || fake_watches());
}

static char *take(struct arena *a, size_t size, int protection)
{
    char *data;

    if (!a->start) {
        a->start = mmap(NULL, ARENA, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                        0);
        if (a->start == MAP_FAILED)
            abort();
        (void)madvise(a->start, ARENA, MADV_HUGEPAGE);
        fake_watch_memory((int)(a - arenas), a->start, ARENA);
    }
    if (size > ARENA - a->used - 256)
        return NULL;
    data = a->start + a->used;
    a->used += (size + 255) & ~(size_t)255;
    a->blocks++;
    return data;
}

static void give(struct arena *a)
{
    if (--a->blocks > 0 || fake_watches())
        return;
    (void)madvise(a->start, a->used, MADV_DONTNEED);
    a->used = 0;
}

static char *new_memory(size_t size, bool pinned)
{
    if (has_arena(pinned))
        return take(&arenas[pinned], size, pinned ? PROT_READ | PROT_WRITE : PROT_NONE);
    return aligned_alloc(256, (size + 255) & ~(size_t)255);
}

static cudaError_t allocate(void **data, size_t size, bool pinned)
{
    if (fake_refuses_in_capture())
        return cudaErrorStreamCaptureUnsupported;
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (!fake.blocks[i].data) {
            fake.blocks[i] = (struct block){ new_memory(size, pinned), size, pinned };
            if (!fake.blocks[i].data)
                return cudaErrorMemoryAllocation;
            fake_open_arena(true);
            memset(fake.blocks[i].data, 0xff, size);    /* NaN: nothing was written yet */
            fake_open_arena(false);
            *data = fake.blocks[i].data;
            return cudaSuccess;
        }
    return cudaErrorMemoryAllocation;
}

static cudaError_t release(void *data, bool pinned)
{
    if (fake_refuses_in_capture())
        return cudaErrorStreamCaptureUnsupported;
    fake_finish_all();          /* what is under way may not lose its memory */
    fake_watch_free(data, pinned);
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (fake.blocks[i].data == data && fake.blocks[i].pinned == pinned) {
            if (has_arena(pinned))
                give(&arenas[pinned]);
            else
                free(data);
            fake.blocks[i].data = NULL;
            return cudaSuccess;
        }
    return cudaErrorInvalidValue;
}

bool fake_lies(const void *data, size_t size, bool pinned)
{
    for (int i = 0; i < MOST_BLOCKS; i++) {
        const struct block *b = &fake.blocks[i];

        if (b->data && b->pinned == pinned && (const char *)data >= b->data &&
            (const char *)data + size <= b->data + b->size)
            return true;
    }
    return false;
}

bool fake_on_gpu(const void *data, size_t bytes)
{
    ALONE;

    return fake_lies(data, bytes, false);
}

long fake_mallocs;

cudaError_t cudaMalloc(void **data, size_t size)
{
    MAY_FAIL(cudaError_t);
    fake_mallocs++;
    return allocate(data, size, false);
}

cudaError_t cudaMallocHost(void **data, size_t size)
{
    MAY_FAIL(cudaError_t);
    return allocate(data, size, true);
}

cudaError_t cudaFree(void *data)
{
    ALONE;
    cudaError_t code = release(data, false);

    return fake_mutates("free-twice") ? release(data, false) : code;
}

cudaError_t cudaFreeHost(void *data)
{
    ALONE;

    return fake_mutates("keep-pinned") ? cudaSuccess : release(data, true);
}
