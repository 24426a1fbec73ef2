/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <math.h>

#include "scheduler/schedule.h"

#define MAX_EDGES 64
#define MAX_STAGES 16
#define MAX_MICRO 64

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
    int n = random_edges(edges, stages, seed);
    struct schedule *s =
        schedule_new(schedule_name(kind), memory, stages, micro, edges, n, &err);

    assert_non_null(s);
    if (schedule_check(s, edges, n, &err))
        fail_msg("%d stages, %d micro-batches: %s", stages, micro, err.text);
    for (int i = 0; i < stages; i++) {
        int bound = kind == SCHEDULE_GPIPE   ? micro
                    : kind == SCHEDULE_1F1B  ? stages - i
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
        for (int micro = 1; micro <= 16; micro++)
            for (int round = 0; round < 8; round++)
                for (int k = 0; k < SCHEDULE_KINDS; k++)
                    check_one((enum schedule_kind)k, 1 + 0.125 * round, stages, micro, &seed);
}

/* Seconds of F, B, W. */
struct times {
    double f, b, w;
};

/* When a chain of stages is done with the lists, if messages take no time. */
static double makespan(const struct schedule *s, const struct times *t)
{
    double end[MAX_STAGES] = { 0 }, forward[MAX_STAGES][MAX_MICRO], last = 0;
    double backward[MAX_STAGES][MAX_MICRO];
    int next[MAX_STAGES] = { 0 };

    for (int i = 0; i < MAX_STAGES; i++)
        for (int m = 0; m < MAX_MICRO; m++)
            forward[i][m] = backward[i][m] = INFINITY;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < s->n_stages; i++) {
            const struct instruction_list *list = &s->stages[i];

            for (; next[i] < list->n; next[i]++, moved = true) {
                const struct instruction *ins = &list->items[next[i]];
                bool f = ins->kind == INSTRUCTION_F, w = ins->kind == INSTRUCTION_W;
                bool both = ins->kind == INSTRUCTION_BW, b = both || ins->kind == INSTRUCTION_B;
                double ready = end[i];

                if (f && i > 0)
                    ready = fmax(ready, forward[i - 1][ins->micro]);
                if (b && i + 1 < s->n_stages)
                    ready = fmax(ready, backward[i + 1][ins->micro]);
                if (isinf(ready))
                    break;
                end[i] = ready + f * t->f + b * t->b + (w || both) * t->w;
                if (f)
                    forward[i][ins->micro] = end[i];
                if (b)
                    backward[i][ins->micro] = end[i];
            }
        }
    }
    for (int i = 0; i < s->n_stages; i++) {
        assert_int_equal(next[i], s->stages[i].n);
        last = fmax(last, end[i]);
    }
    return last;
}

static double bubble(enum schedule_kind kind, double memory, int stages, int micro,
                     const struct times *t)
{
    struct schedule_edge edges[MAX_STAGES];
    struct schedule *s;
    double seconds;

    for (int i = 0; i + 1 < stages; i++)
        edges[i] = (struct schedule_edge){ i, i + 1, true };
    s = schedule_new(schedule_name(kind), memory, stages, micro, edges, stages - 1, NULL);
    seconds = makespan(s, t);
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
    for (int more = 0; more < p; more++) {
        double memory = 1 + ((double)more + 0.5) / p;

        assert_true(fabs(bubble(SCHEDULE_ZB, memory < 2 ? memory : 2, p, m, t) -
                         fmax(h1 - fmin(more, m - p) * t->w, n * t->f)) < CLOSE * m);
    }
}

static void bubbles_are_as_long_as_the_formulas_say(void **state)
{
    static const struct times times[] = { { 1, 1, 1 }, { 1, 1.4, 0.7 }, { 1, 2, 1 } };

    (void)state;
    for (int p = 2; p <= MAX_STAGES; p++)
        for (int m = p; m <= 4 * p; m++)
            for (int i = 0; i < 3; i++)
                check_bubbles(p, m, &times[i]);
}

static void the_last_stage_of_1f1b_turns_back_at_once(void **state)
{
    const struct schedule_edge edge = { 0, 1, true };
    struct schedule *s = schedule_new("1f1b", 0, 2, 3, &edge, 1, NULL);
    const struct instruction_list *last = &s->stages[1];

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

static void what_is_printed_can_be_read_back(void **state)
{
    struct schedule_edge edges[MAX_EDGES];
    unsigned seed = 3;
    int n = random_edges(edges, 5, &seed);
    struct schedule *s = schedule_new("1f1b", 0, 5, 7, edges, n, NULL);
    char *text, *again;
    struct err err = { 0 };
    struct schedule *copy = round_trip(s, &text, &err), *third;

    (void)state;
    assert_non_null(copy);
    third = round_trip(copy, &again, &err);
    assert_string_equal(text, again);
    assert_true(schedule_same(copy, third));
    assert_true(schedule_same(copy, s));
    third->stages[4].items[third->stages[4].n / 2].micro ^= 1;
    assert_false(schedule_same(copy, third));
    assert_int_equal(schedule_check(copy, edges, n, &err), 0);
    assert_int_equal(copy->stages[0].slots, s->stages[0].slots);
    schedule_free(s);
    schedule_free(copy);
    schedule_free(third);
    free(text);
    free(again);
}

static struct schedule *read_text(const char *text, struct err *err)
{
    char *copy = strdup(text);
    FILE *file = fmemopen(copy, strlen(copy), "r");
    struct schedule *s = schedule_read("list", file, err);

    fclose(file);
    free(copy);
    return s;
}

static void a_wrong_line_is_named(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "F 0 0\n", "line 1: expected \"schedule" },
        { "schedule x stages 1 micro-batches 1\nF 0 0\n", "line 2: an instruction before" },
        { "schedule x stages 1 micro-batches 1\nstage 0 slots 1\nG 0 0\n", "line 3: expected" },
        { "schedule x stages 1 micro-batches 1\nstage 0 slots 1\nF 1 0\n", "line 3: \"1\"" },
        { "schedule x stages 1 micro-batches 1\nstage 0 slots 1\nSEND 0 0 <- 0\n", "->" },
        { "schedule x stages 2 micro-batches 1\nstage 0 slots 1\n", "ends before" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = { 0 };

        assert_null(read_text(cases[i].text, &err));
        assert_contains(err.text, cases[i].message);
    }
}

static void check_text(const char *text, const char *message)
{
    const struct schedule_edge edge = { 0, 1, true };
    struct err err = { 0 };
    struct schedule *s = read_text(text, &err);

    assert_non_null(s);
    assert_int_equal(schedule_check(s, &edge, 1, &err), -1);
    assert_contains(err.text, message);
    schedule_free(s);
}

static void a_wrong_list_is_refused_by_stage_and_instruction(void **state)
{
    (void)state;
    /* Stage 1 wants the second micro-batch first. */
    check_text("schedule x stages 2 micro-batches 2\nstage 0 slots 2\n"
               "F 0 0\nSEND 0 0 -> 1\nF 1 0\nSEND 1 0 -> 1\n"
               "RECV 0 0 <- 1 gradient\nBW 0 0\nRECV 1 0 <- 1 gradient\nBW 1 0\nREDUCE\nSTEP\n"
               "stage 1 slots 2\n"
               "RECV 1 0 <- 0\nF 1 0\nRECV 0 0 <- 0\nF 0 0\nB 0 0\nSEND 0 0 -> 0 gradient\n"
               "W 0 0\nB 1 0\nSEND 1 0 -> 0 gradient\nW 1 0\nREDUCE\nSTEP\n",
               "stage 0: SEND 0 0 -> 1: is received in another order");
    /* Stage 0 waits for a gradient, and stage 1 for the next micro-batch. */
    check_text("schedule x stages 2 micro-batches 2\nstage 0 slots 2\n"
               "F 0 0\nSEND 0 0 -> 1\nRECV 0 0 <- 1 gradient\nBW 0 0\n"
               "F 1 0\nSEND 1 0 -> 1\nRECV 1 0 <- 1 gradient\nBW 1 0\nREDUCE\nSTEP\n"
               "stage 1 slots 2\n"
               "RECV 0 0 <- 0\nF 0 0\nRECV 1 0 <- 0\nF 1 0\nB 0 0\nSEND 0 0 -> 0 gradient\n"
               "W 0 0\nB 1 0\nSEND 1 0 -> 0 gradient\nW 1 0\nREDUCE\nSTEP\n",
               "stage 0: BW 0 0: waits for ever");
    /* What is sent may be overwritten by then. */
    check_text("schedule x stages 2 micro-batches 1\nstage 0 slots 1\n"
               "F 0 0\nRECV 0 0 <- 1 gradient\nBW 0 0\nSEND 0 0 -> 1\nREDUCE\nSTEP\n"
               "stage 1 slots 1\n"
               "RECV 0 0 <- 0\nF 0 0\nB 0 0\nSEND 0 0 -> 0 gradient\nW 0 0\nREDUCE\nSTEP\n",
               "stage 0: SEND 0 0 -> 1: does not directly follow what makes it");
    /* The same of a gradient that W may overwrite. */
    check_text("schedule x stages 2 micro-batches 1\nstage 0 slots 1\n"
               "F 0 0\nSEND 0 0 -> 1\nRECV 0 0 <- 1 gradient\nBW 0 0\nREDUCE\nSTEP\n"
               "stage 1 slots 1\n"
               "RECV 0 0 <- 0\nF 0 0\nB 0 0\nW 0 0\nSEND 0 0 -> 0 gradient\nREDUCE\nSTEP\n",
               "list: stage 1: SEND 0 0 -> 0 gradient: does not directly follow");
    /* Their memory is not the same. */
    check_text("schedule x stages 2 micro-batches 2\nstage 0 slots 2\n"
               "F 0 0\nSEND 0 0 -> 1\nF 1 0\nSEND 1 0 -> 1\n"
               "RECV 0 0 <- 1 gradient\nBW 0 0\nRECV 1 0 <- 1 gradient\nB 1 0\nW 1 0\n"
               "REDUCE\nSTEP\nstage 1 slots 1\nREDUCE\nSTEP\n",
               "stage 0: B 1 0: a stage runs BW, or B and W, but not both");
    /* Both are received before one is used. */
    check_text("schedule x stages 2 micro-batches 2\nstage 0 slots 2\n"
               "F 0 0\nSEND 0 0 -> 1\nF 1 0\nSEND 1 0 -> 1\n"
               "RECV 0 0 <- 1 gradient\nBW 0 0\nRECV 1 0 <- 1 gradient\nBW 1 0\nREDUCE\nSTEP\n"
               "stage 1 slots 2\nRECV 0 0 <- 0\nRECV 1 0 <- 0\nF 1 0\nF 0 0\n"
               "B 0 0\nSEND 0 0 -> 0 gradient\nW 0 0\nB 1 0\nSEND 1 0 -> 0 gradient\nW 1 0\n"
               "REDUCE\nSTEP\n", "stage 1: RECV 0 0 <- 0: is used in another order");
    check_text("schedule x stages 2 micro-batches 1\nstage 0 slots 1\nF 0 1\n"
               "stage 1 slots 1\n", "stage 0: F 0 1: no such chunk");
    check_text("schedule x stages 2 micro-batches 1\nstage 0 slots 1\nF 0 0\nREDUCE\nSTEP\n"
               "stage 1 slots 1\nREDUCE\nSTEP\n", "stage 0: micro-batch 0 is not complete");
}

static void unknown_names_are_refused(void **state)
{
    struct err err = { 0 };

    (void)state;
    assert_null(schedule_new("zigzag", 0, 1, 1, NULL, 0, &err));
    assert_contains(err.text, "\"zigzag\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_list_is_complete_and_free_of_deadlock),
        cmocka_unit_test(bubbles_are_as_long_as_the_formulas_say),
        cmocka_unit_test(the_last_stage_of_1f1b_turns_back_at_once),
        cmocka_unit_test(what_is_printed_can_be_read_back),
        cmocka_unit_test(a_wrong_line_is_named),
        cmocka_unit_test(a_wrong_list_is_refused_by_stage_and_instruction),
        cmocka_unit_test(unknown_names_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
