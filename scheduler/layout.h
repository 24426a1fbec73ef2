/* SPDX-License-Identifier: MIT */
/* Placing buffers in one arena by lifetime.
 *
 * Time is a list of points 0, 1, 2 … (the positions of the kernels of a stage program, laid
 * end to end). A buffer occupies its bytes from its first to its last point, both included.
 * The planner's memory forecast and the runtime's arena both come from here.
 */
#ifndef TASUKI_SCHEDULER_LAYOUT_H
#define TASUKI_SCHEDULER_LAYOUT_H

#include <stddef.h>

#define LAYOUT_ALIGNMENT 64

/* Rounded up to a multiple of it: so memory is laid out, and so it is walked through. */
static inline size_t layout_aligned(size_t bytes)
{
    return (bytes + LAYOUT_ALIGNMENT - 1) & ~(size_t)(LAYOUT_ALIGNMENT - 1);
}

struct layout_buffer {
    size_t bytes;
    int first, last;    /* points; first <= last */
    size_t offset;      /* result, a multiple of LAYOUT_ALIGNMENT */
};

/* Give every buffer an offset so that no two that live at the same point overlap: best fit, in
 * that of several orders which takes the fewest bytes. Returns the bytes of the arena.
 * Deterministic.
 */
size_t layout_place(struct layout_buffer *buffers, int n);

/* The largest sum of live bytes at any point: no layout can be smaller. */
size_t layout_lower_bound(const struct layout_buffer *buffers, int n);

#endif
