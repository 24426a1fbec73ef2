/* SPDX-License-Identifier: MIT */
#include "base/mem.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/err.h"

#define ARENA_BLOCK ((size_t)64 * 1024)
#define ARENA_ALIGN 16
/* What is asked of the system at once, of addresses; objects beyond a part of that go by themselves. */
#define MUCH (256 * 1024 * 1024)
#define MUCH_PART 16

double mem_resident(void)
{
    /* Not getrusage(): what it says includes the program that started this one. */
    FILE *status = fopen("/proc/self/status", "re");
    char line[128];
    double kib = 0;

    while (status && fgets(line, sizeof(line), status))
        if (sscanf(line, "VmHWM: %lf kB", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return kib * 1024;
}

void mem_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(ARENA_ALIGN) unsigned char bytes[];
};

struct arena {
    struct arena_block *blocks;
};

int size_mul(size_t a, size_t b, size_t *result)
{
    return __builtin_mul_overflow(a, b, result) ? -1 : 0;
}

int size_add(size_t a, size_t b, size_t *result)
{
    return __builtin_add_overflow(a, b, result) ? -1 : 0;
}

static void *check(void *memory)
{
    if (!memory) {
        fputs("tasuki: out of memory\n", stderr);
        abort();
    }
    return memory;
}

void *mem_new(size_t n, size_t size)
{
    return check(calloc(n ? n : 1, size ? size : 1));
}

/* Only a hint. */
static void advise_large(void *memory, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)memory;
    uintptr_t first = (start + page - 1) / page * page, end = (start + bytes) / page * page;

    if (end > first)
        madvise((char *)memory + (first - start), end - first, MADV_HUGEPAGE);
#endif
}

void *mem_new_large(size_t n, size_t size)
{
    void *memory = mem_new(n, size);

    advise_large(memory, n * size);
    return memory;
}

void mem_expect_much(void)
{
#ifdef __GLIBC__
    uintptr_t end;
    void *memory;

    if (!mallopt(M_TOP_PAD, MUCH) || !mallopt(M_TRIM_THRESHOLD, INT_MAX) ||
        !mallopt(M_MMAP_THRESHOLD, MUCH / MUCH_PART))
        return;
    memory = malloc(MUCH / MUCH_PART / 2);
    end = (uintptr_t)sbrk(0);
    if ((uintptr_t)memory < end && end - (uintptr_t)memory <= (uintptr_t)2 * MUCH)
        advise_large(memory, end - (uintptr_t)memory);
    free(memory);
#endif
}

void *mem_resize(void *old, size_t n, size_t size)
{
    return check(reallocarray(old, n ? n : 1, size ? size : 1));
}

void *mem_try(size_t n, size_t size, struct err *err)
{
    size_t bytes;
    void *memory;

    if (size_mul(n, size, &bytes)) {
        err_set(err, "%zu objects of %zu bytes are too many", n, size);
        return NULL;
    }
    memory = calloc(bytes ? bytes : 1, 1);
    if (!memory)
        err_set(err, "out of memory: %zu bytes", bytes);
    return memory;
}

char *mem_strdup(const char *text)
{
    return check(strdup(text));
}

static char *format_new(const char *format, va_list args)
{
    char *text;

    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    return check(text);
}

char *mem_printf(const char *format, ...)
{
    va_list args;
    char *text;

    va_start(args, format);
    text = format_new(format, args);
    va_end(args);
    return text;
}

size_t mem_room(size_t n)
{
    size_t room = MEM_FIRST;

    while (room < n)
        room *= 2;
    return room;
}

struct arena *arena_new(void)
{
    return mem_new(1, sizeof(struct arena));
}

void arena_free(struct arena *arena)
{
    struct arena_block *block, *next;

    if (!arena)
        return;
    for (block = arena->blocks; block; block = next) {
        next = block->next;
        free(block);
    }
    free(arena);
}

void *arena_alloc(struct arena *arena, size_t n, size_t size)
{
    struct arena_block *block = arena->blocks;
    size_t bytes;
    void *result;

    if (size_mul(n, size, &bytes) || size_add(bytes, ARENA_ALIGN - 1, &bytes))
        check(NULL);
    bytes &= ~(size_t)(ARENA_ALIGN - 1);
    if (!block || block->size - block->used < bytes) {
        size_t room = bytes > ARENA_BLOCK ? bytes : ARENA_BLOCK;

        block = mem_new(1, sizeof(*block) + room);
        block->size = room;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    result = block->bytes + block->used;
    block->used += bytes;
    return result;
}

char *arena_strdup(struct arena *arena, const char *text)
{
    size_t size = strlen(text) + 1;

    return memcpy(arena_alloc(arena, size, 1), text, size);
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args;
    char *text, *copy;

    va_start(args, format);
    text = format_new(format, args);
    va_end(args);
    copy = arena_strdup(arena, text);
    free(text);
    return copy;
}
