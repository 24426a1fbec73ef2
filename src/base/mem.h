/* SPDX-License-Identifier: MIT */
/* Memory for bookkeeping.
 *
 * mem_new() and friends are for small objects whose size the program chose; they end the
 * process when the machine has no memory left, since no caller could go on. Sizes that come
 * from a file go through mem_try(), which reports. Tensor memory is never allocated here.
 */
#ifndef TASUKI_BASE_MEM_H
#define TASUKI_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct err;

/* 'n' zeroed objects of 'size' bytes; free() them. Never NULL (one byte where n is 0). */
void *mem_new(size_t n, size_t size);
/* The same for megabytes, in large pages where the system has some to give. */
void *mem_new_large(size_t n, size_t size);
/* Grow to 'n' objects of 'size' bytes; what is added is not zeroed. Never NULL. */
void *mem_resize(void *old, size_t n, size_t size);
char *mem_strdup(const char *text);
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for sizes read from a file: NULL with 'err' on overflow or exhaustion. */
void *mem_try(size_t n, size_t size, struct err *err);

/* a*b and a+b of non-negative sizes; -1 (and '*result' untouched) on overflow. */
int size_mul(size_t a, size_t b, size_t *result);
int size_add(size_t a, size_t b, size_t *result);

/* Bytes that this process had resident at most; 0 where the system does not say. */
double mem_resident(void);
/* Of a process that wants many megabytes for a short time: the first of them in large pages where the
 * system has some to give, and nothing goes back before it ends.
 */
void mem_expect_much(void);
/* What was freed goes back to the system, as far as the C library can do that. */
void mem_trim(void);

/* Room for what is appended first; a power of two. */
#define MEM_FIRST 4

/* Elements that an array of 'n' > 0 has room for if mem_push() made it: a power of two. */
size_t mem_room(size_t n);

/* Append one element to a growing array: grows ARRAY when COUNT reaches mem_room(COUNT).
 * Usage: *(struct thing *)mem_push((void **)&array, &count, sizeof(*array)) = thing;
 * The new element is zeroed. 'count' starts at 0 with a NULL array.
 */
static inline void *mem_push(void **array, int *count, size_t size)
{
    size_t n = (size_t)*count;
    unsigned char *items;

    /* As bytes: it is a pointer to elements of any type. */
    memcpy(&items, array, sizeof(items));
    if (n == 0 || (n >= MEM_FIRST && (n & (n - 1)) == 0)) {
        items = (unsigned char *)mem_resize(items, mem_room(n + 1), size);
        memcpy(array, &items, sizeof(items));
    }
    ++*count;
    return memset(items + n * size, 0, size);
}

/* An arena: many small allocations, freed all at once. Never returns NULL; zeroed. */
struct arena;
struct arena *arena_new(void);
void arena_free(struct arena *arena);
void *arena_alloc(struct arena *arena, size_t n, size_t size);
char *arena_strdup(struct arena *arena, const char *text);
char *arena_printf(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
