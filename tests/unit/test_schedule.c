/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "scheduler/schedule.h"

#define MAX_EDGES 64

static const char *const names[] = { "gpipe", "1f1b" };

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

static void check_one(const char *name, int stages, int micro, unsigned *seed)
{
    struct schedule_edge edges[MAX_EDGES];
    struct err err = { 0 };
    int n = random_edges(edges, stages, seed);
    struct schedule *s = schedule_new(name, stages, micro, edges, n, &err);

    assert_non_null(s);
    if (schedule_check(s, edges, n, &err))
        fail_msg("%d stages, %d micro-batches: %s", stages, micro, err.text);
    for (int i = 0; i < stages; i++) {
        int bound = strcmp(name, "1f1b") == 0 && stages - i < micro ? stages - i : micro;

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
                for (int k = 0; k < 2; k++)
                    check_one(names[k], stages, micro, &seed);
}

static void the_last_stage_of_1f1b_turns_back_at_once(void **state)
{
    const struct schedule_edge edge = { 0, 1, true };
    struct schedule *s = schedule_new("1f1b", 2, 3, &edge, 1, NULL);
    const struct instruction_list *last = &s->stages[1];

    (void)state;
    for (int i = 0; i < last->n; i++)
        if (last->items[i].kind == INSTRUCTION_F)
            assert_int_equal(last->items[i + 1].kind, INSTRUCTION_B);
    assert_int_equal(schedule_in_flight(s, 0), 2);
    assert_int_equal(schedule_in_flight(s, 1), 1);
    assert_true(schedule_merged(s, 0));
    assert_false(schedule_merged(s, 1));
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
    struct schedule *s = schedule_new("1f1b", 5, 7, edges, n, NULL);
    char *text, *again;
    struct err err = { 0 };
    struct schedule *copy = round_trip(s, &text, &err), *third;

    (void)state;
    assert_non_null(copy);
    third = round_trip(copy, &again, &err);
    assert_string_equal(text, again);
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
    check_text("schedule x stages 2 micro-batches 1\nstage 0 slots 1\nF 0 0\nREDUCE\nSTEP\n"
               "stage 1 slots 1\nREDUCE\nSTEP\n", "stage 0: micro-batch 0 is not complete");
}

static void unknown_names_are_refused(void **state)
{
    struct err err = { 0 };

    (void)state;
    assert_null(schedule_new("zigzag", 1, 1, NULL, 0, &err));
    assert_contains(err.text, "\"zigzag\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_list_is_complete_and_free_of_deadlock),
        cmocka_unit_test(the_last_stage_of_1f1b_turns_back_at_once),
        cmocka_unit_test(what_is_printed_can_be_read_back),
        cmocka_unit_test(a_wrong_line_is_named),
        cmocka_unit_test(a_wrong_list_is_refused_by_stage_and_instruction),
        cmocka_unit_test(unknown_names_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
