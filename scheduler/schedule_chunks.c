/* SPDX-License-Identifier: MIT */
#include "scheduler/schedule.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/schedule_private.h"

/* The computations of a list, without the messages. */
struct pass {
    enum instruction_kind kind;     /* F, B or W */
    int chunk, micro;
};

struct order {
    int n;
    struct pass *items;
    int n_micro;
    int next[INSTRUCTION_W + 1][2]; /* zb-v: the micro-batch that comes next */
};

int schedule_chunks(enum schedule_kind kind, int chunks)
{
    return kind == SCHEDULE_INTERLEAVED ? chunks : kind == SCHEDULE_ZB_V ? 2 : 1;
}

int schedule_most_chunks(const struct schedule *schedule)
{
    int most = 1;

    for (int l = 0; l < schedule->n_lists; l++)
        most = schedule->lists[l].n_chunks > most ? schedule->lists[l].n_chunks : most;
    return most;
}

int schedule_list(enum schedule_kind kind, int n_lists, int s)
{
    return kind == SCHEDULE_ZB_V && s >= n_lists ? 2 * n_lists - 1 - s : s % n_lists;
}

int schedule_suits(enum schedule_kind kind, int n_lists, int64_t micro_batches,
                   struct err *err)
{
    int64_t nearest = (micro_batches + n_lists / 2) / n_lists * n_lists;

    if (kind != SCHEDULE_INTERLEAVED || micro_batches % n_lists == 0)
        return 0;
    return err_set(err, "schedule \"interleaved\": %lld micro-batches over %d devices: the "
                   "nearest count that is a multiple of the devices is %lld",
                   (long long)micro_batches, n_lists,
                   (long long)(nearest ? nearest : n_lists));
}

static void add(struct order *o, enum instruction_kind kind, int chunk, int micro)
{
    struct pass *pass = mem_push((void **)&o->items, &o->n, sizeof(*pass));

    *pass = (struct pass){ kind, chunk, micro };
}

static int ahead_of(int l, int n_lists, int chunks, int all)
{
    int ahead = 2 * (n_lists - 1 - l) + (chunks - 1) * n_lists;

    return ahead < all ? ahead : all;
}

/* The k-th forward and the k-th backward are of one micro-batch, and of opposite chunks. */
static void order_interleaved(struct order *o, int l, int n_lists, int chunks)
{
    int all = chunks * o->n_micro, ahead = ahead_of(l, n_lists, chunks, all);

    for (int i = 0; i < all + ahead; i++) {
        int k = i - ahead, chunk = chunks - 1 - k / n_lists % chunks;
        int micro = k / (n_lists * chunks) * n_lists + k % n_lists;

        if (i < all)
            add(o, INSTRUCTION_F, i / n_lists % chunks,
                i / (n_lists * chunks) * n_lists + i % n_lists);
        if (k < 0)
            continue;
        add(o, INSTRUCTION_B, chunk, micro);
        add(o, INSTRUCTION_W, chunk, micro);
    }
}

/* The next micro-batch of this kind and chunk; nothing where there are fewer than the order was
 * made for.
 */
static void add_next(struct order *o, enum instruction_kind kind, int chunk)
{
    int micro = o->next[kind][chunk]++;

    if (micro < o->n_micro)
        add(o, kind, chunk, micro);
}

static void add_backward(struct order *o, int chunk)
{
    add_next(o, INSTRUCTION_B, chunk);
    add_next(o, INSTRUCTION_W, chunk);
}

/* Warm-up until the first gradient comes to chunk 0; then B W F of chunk 0 and F B W of chunk 1
 * in turn, so that a slot of chunk 0 is left before it is needed; at the end the W of the last
 * micro-batches fill the time in which gradients are under way.
 */
static void order_v(struct order *o, int l, int n_lists)
{
    int most = 2 * n_lists - 1 > o->n_micro ? 2 * n_lists - 1 : o->n_micro;
    const int *f = o->next[INSTRUCTION_F], *b = o->next[INSTRUCTION_B];
    const int *w = o->next[INSTRUCTION_W];

    for (int i = 0; i < 2 * (n_lists - l) - 1; i++)
        add_next(o, INSTRUCTION_F, 0);
    for (int i = 0; i < l; i++) {
        add_next(o, INSTRUCTION_F, 1);
        add_next(o, INSTRUCTION_F, 0);
    }
    for (int i = 0; i < n_lists - l; i++) {
        add_next(o, INSTRUCTION_F, 1);
        add_backward(o, 1);
    }
    while (f[1] < most) {
        add_backward(o, 0);
        if (f[0] < most)
            add_next(o, INSTRUCTION_F, 0);
        add_next(o, INSTRUCTION_F, 1);
        add_backward(o, 1);
    }
    for (int i = 0; i < l; i++) {
        add_next(o, INSTRUCTION_B, 0);
        add_next(o, INSTRUCTION_B, 1);
    }
    for (int i = 0; i < n_lists - l; i++)
        add_backward(o, 0);
    while (w[1] < b[1])
        add_next(o, INSTRUCTION_W, 1);
    while (w[0] < b[0])
        add_next(o, INSTRUCTION_W, 0);
}

/* After this pass its micro-batch needs the slot no more. */
static bool frees(const struct builder *b, const struct pass *pass)
{
    return pass->kind == (b->sends_gradient ? INSTRUCTION_W : INSTRUCTION_B);
}

static void count_slots(struct builder *chunks, int n_chunks, const struct order *o)
{
    int *live = mem_new((size_t)n_chunks, sizeof(*live));

    for (int i = 0; i < o->n; i++) {
        const struct pass *pass = &o->items[i];
        struct builder *b = &chunks[pass->chunk];

        if (pass->kind == INSTRUCTION_F && ++live[pass->chunk] > b->slots)
            b->slots = live[pass->chunk];
        else if (frees(b, pass))
            live[pass->chunk]--;
    }
    free(live);
}

/* A stage that sends no gradient runs BW where it would run B. */
static void emit(struct builder *b, const struct pass *pass)
{
    if (pass->kind == INSTRUCTION_F)
        builder_forward(b, pass->micro);
    else if (pass->kind == INSTRUCTION_B && b->sends_gradient)
        builder_dgrad(b, pass->micro);
    else if (frees(b, pass))
        builder_wgrad(b, pass->micro);
}

/* The F or B that follows pass 'i' without another one between, an F where its slot is free before
 * that; else -1.
 */
static int next_pass(const struct builder *chunks, const struct order *o, int i,
                     const int *complete)
{
    const struct pass *next;
    int k = i + 1;

    while (k < o->n && o->items[k].kind == INSTRUCTION_W)
        k++;
    next = &o->items[k];
    if (k == o->n || o->items[i].kind == INSTRUCTION_W ||
        (next->kind == INSTRUCTION_F &&
         next->micro >= complete[next->chunk] + chunks[next->chunk].slots))
        return -1;
    return k;
}

static void emit_recvs(struct builder *chunks, const struct pass *pass)
{
    builder_recvs(&chunks[pass->chunk], pass->micro, pass->kind == INSTRUCTION_B);
}

/* What the next F or B receives is posted before this pass, if it can be. */
static void emit_all(struct builder *chunks, int n_chunks, const struct order *o)
{
    int *complete = mem_new((size_t)n_chunks, sizeof(*complete)), posted = -1;

    for (int i = 0; i < o->n; i++) {
        const struct pass *pass = &o->items[i];
        int next = next_pass(chunks, o, i, complete);

        if (pass->kind != INSTRUCTION_W && posted < i)
            emit_recvs(chunks, pass);
        if (next >= 0) {
            emit_recvs(chunks, &o->items[next]);
            posted = next;
        }
        emit(&chunks[pass->chunk], pass);
        complete[pass->chunk] += frees(&chunks[pass->chunk], pass);
    }
    free(complete);
}

static void make_order(struct order *order, enum schedule_kind kind, int l, int n_lists,
                       int chunks)
{
    if (kind == SCHEDULE_ZB_V)
        order_v(order, l, n_lists);
    else
        order_interleaved(order, l, n_lists, chunks);
}

/* Of the first 'n' passes of an interleaved list, those of the chunk that comes in this place. */
static int passes_of(int n, int n_lists, int chunks, int place)
{
    int turn = n_lists * chunks, rest = n % turn - place * n_lists;

    rest = rest < 0 ? 0 : rest > n_lists ? n_lists : rest;
    return n / turn * n_lists + rest;
}

/* What count_slots() finds in the order: no forward of a turn leaves fewer live than the one
 * before it, so the last of each tells.
 */
static int interleaved_slots(int l, int n_lists, int chunks, int n_micro, int chunk)
{
    int all = chunks * n_micro, ahead = ahead_of(l, n_lists, chunks, all), most = 0;

    for (int n = (chunk + 1) * n_lists; n <= all; n += n_lists * chunks) {
        int back = n - 1 > ahead ? n - 1 - ahead : 0;
        int live = passes_of(n, n_lists, chunks, chunk) -
                   passes_of(back, n_lists, chunks, chunks - 1 - chunk);

        most = live > most ? live : most;
    }
    return most;
}

/* Of chunk 0 the warm-up's forwards, less what the list's chunk 1 has meanwhile brought back. */
static int v_slots(int l, int n_lists, int n_micro, int chunk)
{
    int most = chunk == 0 ? 2 * n_lists - 1 - l : l + 1;

    return most < n_micro ? most : n_micro;
}

int schedule_chunk_slots(enum schedule_kind kind, int n_lists, int chunks, int micro_batches,
                         int s)
{
    /* More micro-batches than that repeat what is there. */
    int steady = 4 * n_lists, n = micro_batches < steady ? micro_batches : steady;
    int l = schedule_list(kind, n_lists, s);

    return kind == SCHEDULE_ZB_V ? v_slots(l, n_lists, n, s / n_lists)
                                 : interleaved_slots(l, n_lists, chunks, n, s / n_lists);
}

int schedule_chunk_late(enum schedule_kind kind, int n_lists, int64_t micro_batches, int s)
{
    int late = s < n_lists;     /* that of the last micro-batch */

    if (kind == SCHEDULE_ZB_V)
        late += schedule_list(kind, n_lists, s);
    return late < micro_batches ? late : (int)micro_batches;
}

void schedule_build_chunks(const struct schedule *schedule, enum schedule_kind kind, int l,
                           struct builder *chunks)
{
    int n_chunks = schedule->lists[l].n_chunks;
    struct order order = { .n_micro = schedule->micro_batches };

    make_order(&order, kind, l, schedule->n_lists, n_chunks);
    count_slots(chunks, n_chunks, &order);
    emit_all(chunks, n_chunks, &order);
    free(order.items);
}
