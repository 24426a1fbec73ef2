/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <math.h>

#include "scheduler/schedule.h"

#define MAX_EDGES (16 * 15 / 2)
#define MAX_LISTS 16
#define MAX_CHUNKS 4
#define MAX_STAGES (MAX_LISTS * MAX_CHUNKS)
#define MAX_MICRO (3 * 64)
#define CHAINS (SCHEDULE_ZB + 1)    /* kinds of one chunk */

#define CLOSE 1e-9

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A random DAG over the stages; the chain is not always part of it. */
static int random_edges(struct schedule_edge *edges, int stages, unsigned *seed)
{
    unsigned density = next_random(seed) % 4;
    int n = 0;

    for (int from = 0; from < stages; from++)
        for (int to = from + 1; to < stages; to++)
            if (next_random(seed) % 4 <= density - (to > from + 1 ? density / 2 : 0))
                edges[n++] = (struct schedule_edge){ from, to, next_random(seed) % 4 != 0 };
    return n;
}

static void check_one(enum schedule_kind kind, double memory, int stages, int micro,
                      unsigned *seed)
{
    struct schedule_edge edges[MAX_EDGES];
    struct err err = { 0 };
    const struct schedule_options options = { .memory = memory };
    int n = random_edges(edges, stages, seed);
    struct schedule *s =
        schedule_new(schedule_name(kind), &options, stages, micro, edges, n, &err);

    assert_non_null(s);
    if (schedule_check(s, edges, n, &err))
        fail_msg("%d stages, %d micro-batches: %s", stages, micro, err.text);
    for (int i = 0; i < stages; i++) {
        int bound = kind == SCHEDULE_GPIPE   ? micro
                    : kind == SCHEDULE_1F1B || kind == SCHEDULE_2BW ? stages - i
                    : kind == SCHEDULE_ZB_H1 ? stages
                                             : (int)(memory * stages);

        bound = bound < micro ? bound : micro;
        if (kind == SCHEDULE_ZB && 2 * stages - 1 < bound)
            bound = 2 * stages - 1;
        assert_int_equal(s->stages[i].slots, bound);
        assert_true(schedule_in_flight(s, i) <= bound);
    }
    schedule_free(s);
}

static void every_list_is_complete_and_free_of_deadlock(void **state)
{
    unsigned seed = 1;

    (void)state;
    for (int stages = 1; stages <= 8; stages++)
        for (int micro = 1; micro <= 16; micro += some_apart(16))
            for (int round = 0; round < 8; round++)
                for (int k = 0; k < CHAINS; k++)
                    check_one((enum schedule_kind)k, 1 + 0.125 * round, stages, micro, &seed);
}

/* No more micro-batches at once than under 1f1b, of two batches together. */
static void lists_that_are_not_flushed_are_complete_and_free_of_deadlock(void **state)
{
    unsigned seed = 4;

    (void)state;
    for (int stages = 1; stages <= 16; stages++)
        for (int micro = 1; micro <= 4 * stages; micro += some_apart(4 * stages))
            check_one(SCHEDULE_2BW, 0, stages, micro, &seed);
}

static void check_chunks(enum schedule_kind kind, int lists, int chunks, int micro,
                         unsigned *seed)
{
    struct schedule_edge edges[16 * 15 / 2];
    const struct schedule_options options = { .chunks = chunks };
    struct err err = { 0 };
    int n = random_edges(edges, lists * chunks, seed);
    struct schedule *s =
        schedule_new(schedule_name(kind), &options, lists * chunks, micro, edges, n, &err);

    assert_non_null(s);
    assert_int_equal(s->n_lists, lists);
    if (schedule_check(s, edges, n, &err))
        fail_msg("%d times %d stages, %d micro-batches: %s", chunks, lists, micro, err.text);
    for (int i = 0; i < s->n_stages; i++) {
        const struct schedule_stage *at = &s->stages[i];

        assert_int_equal(at->list, schedule_list(kind, lists, i));
        assert_int_equal(s->lists[at->list].stages[at->chunk], i);
        assert_true(at->slots <= micro);
    }
    schedule_free(s);
}

static void lists_of_several_chunks_are_complete_and_free_of_deadlock(void **state)
{
    unsigned seed = 2;

    (void)state;
    for (int lists = 1; lists <= 5; lists++) {
        for (int round = 0; round < 4; round++) {
            for (int micro = 1; micro <= 16; micro++)
                check_chunks(SCHEDULE_ZB_V, lists, 2, micro, &seed);
            for (int chunks = 2; chunks * lists <= 16; chunks++)
                for (int times = 1; times <= 4; times++)
                    check_chunks(SCHEDULE_INTERLEAVED, lists, chunks, times * lists, &seed);
        }
    }
}

/* Seconds of F, B, W. */
struct times {
    double f, b, w;
};

/* A chain of stages at work, if messages take no time. */
struct replay {
    const struct schedule *schedule;
    double forward[MAX_STAGES][MAX_MICRO], backward[MAX_STAGES][MAX_MICRO];     /* ends */
    double posted[MAX_STAGES][2][MAX_MICRO];    /* receives of values and gradients, in order */
    int received[MAX_STAGES][2], sent[MAX_STAGES][2];
    double start[MAX_LISTS], end[MAX_LISTS];    /* of a list's computations so far */
    double idle[MAX_LISTS];                     /* between them */
    int next[MAX_LISTS];
};

/* From when on a SEND, the next one of its stage, need wait no more. */
static double may_send(const struct replay *r, int s, const struct instruction *send)
{
    int before = r->sent[s][send->gradient] - schedule_sends(r->schedule, s, send->peer);

    return before < 0 ? 0 : r->posted[send->peer][send->gradient][before];
}

/* Run the next instruction of a list, where it can run. 't' is of a device: of all its chunks. */
static bool run_next(struct replay *r, int l, const struct times *t)
{
    const struct instruction_list *list = &r->schedule->lists[l];
    const struct instruction *ins = &list->items[r->next[l]];
    bool f = ins->kind == INSTRUCTION_F, w = ins->kind == INSTRUCTION_W;
    bool both = ins->kind == INSTRUCTION_BW, b = both || ins->kind == INSTRUCTION_B;
    bool send = ins->kind == INSTRUCTION_SEND;
    double ready = r->end[l];
    int s = list->stages[ins->chunk];

    if (send)
        ready = fmax(ready, may_send(r, s, ins));
    if (f && s > 0)
        ready = fmax(ready, r->forward[s - 1][ins->micro]);
    if (b && s + 1 < r->schedule->n_stages)
        ready = fmax(ready, r->backward[s + 1][ins->micro]);
    if (isinf(ready))
        return false;
    r->next[l]++;
    if (ins->kind == INSTRUCTION_RECV)
        r->posted[s][ins->gradient][r->received[s][ins->gradient]++] = ready;
    r->sent[s][ins->gradient] += send;
    if (f && ins->micro == 0 && ins->chunk == 0)
        r->start[l] = ready;
    else
        r->idle[l] += ready - r->end[l];
    r->end[l] = ready + (f * t->f + b * t->b + (w || both) * t->w) / list->n_chunks;
    if (f)
        r->forward[s][ins->micro] = r->end[l];
    if (b)
        r->backward[s][ins->micro] = r->end[l];
    return true;
}

static void replay(struct replay *r, const struct schedule *s, const struct times *t)
{
    *r = (struct replay){ .schedule = s };
    for (int i = 0; i < MAX_STAGES; i++)
        for (int m = 0; m < MAX_MICRO; m++)
            r->forward[i][m] = r->backward[i][m] = r->posted[i][0][m] = r->posted[i][1][m] =
                INFINITY;
    for (bool moved = true; moved;) {
        moved = false;
        for (int l = 0; l < s->n_lists; l++)
            while (r->next[l] < s->lists[l].n && run_next(r, l, t))
                moved = true;
    }
    for (int l = 0; l < s->n_lists; l++)
        assert_int_equal(r->next[l], s->lists[l].n);
}

static double makespan(const struct schedule *s, const struct times *t)
{
    struct replay r;
    double last = 0;

    replay(&r, s, t);
    for (int l = 0; l < s->n_lists; l++)
        last = fmax(last, r.end[l]);
    return last;
}

/* Slots of a list, each of which holds one chunk of a device. */
static int slots_of(const struct schedule *s, int l)
{
    int slots = 0;

    for (int c = 0; c < s->lists[l].n_chunks; c++)
        slots += s->stages[s->lists[l].stages[c]].slots;
    return slots;
}

/* Micro-batches of a chunk that a device holds at once, each from its F to its W, in all chunks. */
static int most_held(const struct instruction_list *list)
{
    int held = 0, most = 0;

    for (int i = 0; i < list->n; i++) {
        enum instruction_kind kind = list->items[i].kind;

        held += kind == INSTRUCTION_F;
        most = held > most ? held : most;
        held -= kind == INSTRUCTION_W || kind == INSTRUCTION_BW;
    }
    return most;
}

/* What device 'l' may hold. Under interleaved it runs (chunks - 1)p + 2(p - 1 - l) forwards of
 * Megatron-LM's order before its first backward, and one more.
 */
static int may_hold(enum schedule_kind kind, double memory, int lists, int chunks, int micro, int l)
{
    const int most[SCHEDULE_KINDS] = {
        [SCHEDULE_1F1B] = lists - l,
        [SCHEDULE_2BW] = lists - l,
        [SCHEDULE_GPIPE] = micro,
        [SCHEDULE_ZB_H1] = lists,
        [SCHEDULE_ZB] = (int)(memory * lists),
        [SCHEDULE_ZB_V] = 2 * lists,
        [SCHEDULE_INTERLEAVED] = (chunks - 1) * lists + 2 * (lists - 1 - l) + 1,
    };

    return most[kind] < chunks * micro ? most[kind] : chunks * micro;
}

/* Complete, free of deadlock under rendezvous, and within the memory of its schedule. Slots of
 * interleaved are for each chunk what it holds at most, not all at the same time.
 */
static void check_lists(const struct schedule *s, const struct schedule_edge *edges,
                        enum schedule_kind kind, double memory, int chunks, int micro)
{
    struct err err = { 0 };

    if (schedule_check(s, edges, s->n_stages - 1, &err))
        fail_msg("%s: %d lists, %d micro-batches: %s", s->name, s->n_lists, micro, err.text);
    for (int l = 0; l < s->n_lists; l++) {
        int most = may_hold(kind, memory, s->n_lists, chunks, micro, l);
        int held = most_held(&s->lists[l]);

        if (held > most || (kind != SCHEDULE_INTERLEAVED && slots_of(s, l) > most))
            fail_msg("%s: list %d of %d, %d micro-batches: %d held in %d slots, not %d", s->name, l,
                     s->n_lists, micro, held, slots_of(s, l), most);
    }
    for (int i = 0; i < s->n_stages; i++)
        assert_true(schedule_in_flight(s, i) <= s->stages[i].slots);
}

/* The lists for a chain. */
static struct schedule *chain(enum schedule_kind kind, double memory, int lists, int chunks,
                              int micro)
{
    const struct schedule_options options = { memory, chunks };
    struct schedule_edge edges[MAX_STAGES];
    struct err err = { 0 };
    struct schedule *s;

    for (int i = 0; i + 1 < lists * chunks; i++)
        edges[i] = (struct schedule_edge){ i, i + 1, true };
    s = schedule_new(schedule_name(kind), &options, lists * chunks, micro, edges,
                     lists * chunks - 1, &err);
    if (!s)
        fail_msg("%s", err.text);
    check_lists(s, edges, kind, memory, chunks, micro);
    return s;
}

static double bubble(enum schedule_kind kind, double memory, int stages, int micro,
                     const struct times *t)
{
    struct schedule *s = chain(kind, memory, stages, 1, micro);
    double seconds = makespan(s, t);

    schedule_free(s);
    return seconds - micro * (t->f + t->b + t->w);
}

/* What Qi et al., "Zero Bubble Pipeline Parallelism" (2023), table 2, says of ZB-H1, what is
 * known of GPipe and 1F1B, and one W less for each slot that zb has more.
 */
static void check_bubbles(int p, int m, const struct times *t)
{
    const struct times fused = { t->f, t->b + t->w, 0 };
    double n = p - 1, h1 = n * (t->f + t->b - t->w);

    for (int k = SCHEDULE_1F1B; k <= SCHEDULE_GPIPE; k++) {
        enum schedule_kind kind = (enum schedule_kind)k;

        assert_true(fabs(bubble(kind, 0, p, m, &fused) - n * (t->f + t->b + t->w)) < CLOSE * m);
        assert_true(bubble(kind, 0, p, m, t) < n * (t->f + t->b) + CLOSE * m);
    }
    assert_true(fabs(bubble(SCHEDULE_ZB_H1, 0, p, m, t) - h1) < CLOSE * m);
    assert_true(h1 < bubble(SCHEDULE_1F1B, 0, p, m, t) + CLOSE * m);
    assert_true(h1 < bubble(SCHEDULE_1F1B, 0, p, m, &fused) + CLOSE * m);
    for (int more = 0; more < p; more++) {
        double memory = 1 + ((double)more + 0.5) / p;

        assert_true(fabs(bubble(SCHEDULE_ZB, memory < 2 ? memory : 2, p, m, t) -
                         fmax(h1 - fmin(more, m - p) * t->w, n * t->f)) < CLOSE * m);
    }
}

static const struct times times[] = { { 1, 1, 1 }, { 1, 1.4, 0.7 }, { 1, 2, 1 } };

static void bubbles_are_as_long_as_the_formulas_say(void **state)
{
    (void)state;
    for (int p = 2; p <= MAX_LISTS; p++)
        for (int m = p; m <= 4 * p; m += some_apart(3 * p))
            for (int i = 0; i < 3; i++)
                check_bubbles(p, m, &times[i]);
}

/* Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters" (2021),
 * 2.2; sending gradients before W makes it no longer.
 */
static void check_interleaved(int p, int chunks, int m, const struct times *t)
{
    const struct times fused = { t->f, t->b + t->w, 0 };
    struct schedule *s = chain(SCHEDULE_INTERLEAVED, 0, p, chunks, m);
    double all = t->f + t->b + t->w, bubble = (p - 1) * all / chunks;

    assert_true(fabs(makespan(s, &fused) - m * all - bubble) < CLOSE * m);
    assert_true(makespan(s, t) - m * all < bubble + CLOSE * m);
    for (int k = 0; k < s->n_stages; k++)
        assert_int_equal(schedule_chunk_slots(SCHEDULE_INTERLEAVED, p, chunks, m, k),
                         s->stages[k].slots);
    schedule_free(s);
}

static void interleaving_divides_the_bubble_by_the_chunks(void **state)
{
    (void)state;
    for (int p = 2; p <= MAX_LISTS; p++)
        for (int m = p; m <= 4 * p; m += p)
            for (int chunks = 2; chunks <= MAX_CHUNKS; chunks++)
                for (int i = 0; i < 3; i++)
                    check_interleaved(p, chunks, m, &times[i]);
}

static void interleaved_wants_multiples_of_the_devices(void **state)
{
    const struct schedule_options options = { .chunks = 2 }, one = { .chunks = 1 };
    static const struct {
        int micro;
        const char *nearest;
    } cases[] = { { 1, " is 4" }, { 5, " is 4" }, { 7, " is 8" }, { 13, " is 12" } };

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct err err = { 0 };

        assert_null(schedule_new("interleaved", &options, 8, cases[i].micro, NULL, 0, &err));
        assert_contains(err.text, cases[i].nearest);
    }
    struct err few = { 0 }, uneven = { 0 };

    assert_null(schedule_new("interleaved", &one, 8, 8, NULL, 0, &few));
    assert_contains(few.text, "1 chunks for each device");
    assert_null(schedule_new("zb-v", NULL, 7, 8, NULL, 0, &uneven));
    assert_contains(uneven.text, "7 stages are not 2 for each device");
}

static void check_v(int p, int m)
{
    struct schedule *s = chain(SCHEDULE_ZB_V, 0, p, 2, m);
    struct replay r;

    for (int i = 2; i >= 0; i--)
        replay(&r, s, &times[i]);
    for (int k = 0; k < s->n_stages; k++)
        assert_int_equal(schedule_chunk_slots(SCHEDULE_ZB_V, p, 2, m, k), s->stages[k].slots);
    for (int l = 0; l < p; l++) {
        /* 1f1b's first stage has p slots of a whole device. */
        assert_true(slots_of(s, l) <= 2 * p);
        if (m < 2 * p)
            continue;
        assert_int_equal(slots_of(s, l), 2 * p);
        assert_true(fabs(r.idle[l]) < CLOSE * m);
    }
    schedule_free(s);
}

static void no_device_of_a_v_is_idle_between_its_computations(void **state)
{
    (void)state;
    for (int p = 2; p <= MAX_LISTS; p++)
        for (int m = p; m <= 4 * p; m += some_apart(3 * p))
            check_v(p, m);
}

/* Without a pause from one batch into the next: three have the fill and the end of one. */
static void check_unflushed(int p, int m, const struct times *t)
{
    struct schedule *s = chain(SCHEDULE_2BW, 0, p, 1, m), *few, *many;

    few = schedule_unroll(s, 1, true);
    many = schedule_unroll(s, 3, true);
    assert_true(fabs(makespan(many, t) - makespan(few, t) - 2 * m * (t->f + t->b + t->w)) <
                CLOSE * m);
    schedule_free(few);
    schedule_free(many);
    schedule_free(s);
}

static void without_a_flush_there_is_no_bubble_between_batches(void **state)
{
    (void)state;
    for (int p = 2; p <= 16; p++)
        for (int m = p; m <= 4 * p; m += some_apart(3 * p))
            for (int i = 0; i < 3; i++)
                check_unflushed(p, m, &times[i]);
}

/* Within a batch's list there are forwards of the next one: what is printed is read back. */
static void one_batch_of_an_unflushed_list_is_1f1b(void **state)
{
    const struct schedule_edge edges[] = { { 0, 1, true }, { 1, 2, true } };
    struct schedule *s = schedule_new("2bw", NULL, 3, 4, edges, 2, NULL);
    struct schedule *once = schedule_unroll(s, 1, true);
    struct schedule *plain = schedule_new("1f1b", NULL, 3, 4, edges, 2, NULL);
    int micros[4];

    (void)state;
    assert_int_equal(s->versions, 2);
    assert_int_equal(plain->versions, 1);
    for (int l = 0; l < 3; l++)
        for (int k = 0, i = 0; k < plain->lists[l].n; k++) {
            const struct instruction *a = &plain->lists[l].items[k], *b;

            if (a->kind == INSTRUCTION_RECV)
                continue;
            while (once->lists[l].items[i].kind == INSTRUCTION_RECV)
                i++;
            b = &once->lists[l].items[i++];
            assert_int_equal(a->kind, b->kind);
            assert_int_equal(a->micro, b->micro);
        }
    for (int l = 0; l < 3; l++)
        for (int forward = 0; forward < 2; forward++) {
            schedule_order(s, l, forward, micros);
            for (int m = 0; m < 4; m++)
                assert_int_equal(micros[m], m);
        }
    schedule_free(s);
    schedule_free(once);
    schedule_free(plain);
}

static void the_last_stage_of_1f1b_turns_back_at_once(void **state)
{
    const struct schedule_edge edge = { 0, 1, true };
    struct schedule *s = schedule_new("1f1b", NULL, 2, 3, &edge, 1, NULL);
    const struct instruction_list *last = &s->lists[1];

    (void)state;
    for (int i = 0; i < last->n; i++)
        if (last->items[i].kind == INSTRUCTION_F)
            assert_int_equal(last->items[i + 1].kind, INSTRUCTION_B);
    assert_int_equal(schedule_in_flight(s, 0), 2);
    assert_int_equal(schedule_in_flight(s, 1), 1);
    assert_int_equal(schedule_backward(s, 0), BACKWARD_MERGED);
    assert_int_equal(schedule_backward(s, 1), BACKWARD_SPLIT);
    schedule_free(s);
}

static struct schedule *round_trip(const struct schedule *s, char **text, struct err *err)
{
    size_t size;
    FILE *file = open_memstream(text, &size);
    struct schedule *copy;

    assert_int_equal(schedule_print(s, file), 0);
    fclose(file);
    file = fmemopen(*text, size, "r");
    copy = schedule_read("list", file, err);
    fclose(file);
    return copy;
}

static void print_and_read(const char *name, unsigned *seed)
{
    struct schedule_edge edges[MAX_EDGES];
    const struct schedule_options options = { .chunks = 2 };
    int n = random_edges(edges, 6, seed);
    struct schedule *s = schedule_new(name, &options, 6, 9, edges, n, NULL);
    char *text, *again;
    struct err err = { 0 };
    struct schedule *copy = round_trip(s, &text, &err), *third;

    assert_non_null(copy);
    third = round_trip(copy, &again, &err);
    assert_string_equal(text, again);
    assert_true(schedule_same(copy, third));
    assert_true(schedule_same(copy, s));
    third->lists[1].items[third->lists[1].n / 2].micro ^= 1;
    assert_false(schedule_same(copy, third));
    assert_int_equal(schedule_check(copy, edges, n, &err), 0);
    assert_int_equal(copy->n_lists, s->n_lists);
    assert_int_equal(copy->stages[5].slots, s->stages[5].slots);
    schedule_free(s);
    schedule_free(copy);
    schedule_free(third);
    free(text);
    free(again);
}

static void what_is_printed_can_be_read_back(void **state)
{
    static const char *const names[] = { "1f1b", "zb-v", "interleaved", "2bw" };
    unsigned seed = 3;

    (void)state;
    for (int i = 0; i < 4; i++)
        print_and_read(names[i], &seed);
}

/* The schedule that made a list is found by it, and what it was made with. */
static void is_found(enum schedule_kind kind, double memory, int chunks, unsigned *seed)
{
    struct schedule_edge edges[MAX_EDGES], *named;
    const struct schedule_options options = { memory, chunks };
    struct schedule_options found;
    int n = random_edges(edges, 6, seed), n_named;
    struct schedule *s = schedule_new(schedule_name(kind), &options, 6, 12, edges, n, NULL);

    named = schedule_edges(s, &n_named);
    assert_int_equal(n_named, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(named[i].from, edges[i].from);
        assert_int_equal(named[i].to, edges[i].to);
        assert_int_equal(named[i].gradient, edges[i].gradient);
    }
    free(named);
    assert_int_equal(schedule_like(s, &found), kind);
    assert_int_equal(found.chunks, schedule_chunks(kind, chunks));
    assert_true(fabs(found.memory - memory) < CLOSE);
    free(s->name);
    s->name = strdup("mine");
    assert_true(schedule_like(s, &found) >= 0);
    s->stages[3].slots++;
    assert_int_equal(schedule_like(s, &found), -1);
    schedule_free(s);
}

static void a_list_tells_the_schedule_that_made_it(void **state)
{
    unsigned seed = 5;

    (void)state;
    for (int round = 0; round < 8; round++) {
        is_found(SCHEDULE_1F1B, 0, 1, &seed);
        is_found(SCHEDULE_GPIPE, 0, 1, &seed);
        is_found(SCHEDULE_ZB_H1, 0, 1, &seed);
        is_found(SCHEDULE_2BW, 0, 1, &seed);
        is_found(SCHEDULE_ZB_V, 0, 2, &seed);
        is_found(SCHEDULE_INTERLEAVED, 0, 2, &seed);
        is_found(SCHEDULE_INTERLEAVED, 0, 3, &seed);
        for (int more = 0; more <= 5; more++)
            is_found(SCHEDULE_ZB, 1 + more / 6.0, 1, &seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_list_is_complete_and_free_of_deadlock),
        cmocka_unit_test(lists_that_are_not_flushed_are_complete_and_free_of_deadlock),
        cmocka_unit_test(without_a_flush_there_is_no_bubble_between_batches),
        cmocka_unit_test(one_batch_of_an_unflushed_list_is_1f1b),
        cmocka_unit_test(lists_of_several_chunks_are_complete_and_free_of_deadlock),
        cmocka_unit_test(bubbles_are_as_long_as_the_formulas_say),
        cmocka_unit_test(interleaving_divides_the_bubble_by_the_chunks),
        cmocka_unit_test(interleaved_wants_multiples_of_the_devices),
        cmocka_unit_test(no_device_of_a_v_is_idle_between_its_computations),
        cmocka_unit_test(the_last_stage_of_1f1b_turns_back_at_once),
        cmocka_unit_test(what_is_printed_can_be_read_back),
        cmocka_unit_test(a_list_tells_the_schedule_that_made_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
