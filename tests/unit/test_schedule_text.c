/* SPDX-License-Identifier: MIT */
/* Lists that people write: what is wrong with them is named. */
#include "unit.h"

#include "scheduler/schedule.h"

static struct schedule *read_text(const char *text, struct err *err)
{
    char *copy = strdup(text);
    FILE *file = fmemopen(copy, strlen(copy), "r");
    struct schedule *s = schedule_read("list", file, err);

    fclose(file);
    free(copy);
    return s;
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
        { "schedule x stages 2 micro-batches 1\nstage 1 slots 1\nstage 0 slots 1\n",
          "line 3: stages are not in order" },
        { "schedule x stages 2 micro-batches 1\nstage 0 slots 1\nF 0 0\nstage 0 slots 1\n",
          "line 4: a stage for the second time" },
        { "schedule x stages 1 micro-batches 1 versions 3\n", "line 1: \"3\"" },
        { "schedule x stages 1 micro-batches 1 copies 2\n", "line 1: expected \"schedule" },
        { "schedule x stages 1 micro-batches 1 versions 2\nstage 0 slots 1\nF 2 0\n",
          "line 3: \"2\": expected an integer from 0 to 1" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = { 0 };

        assert_null(read_text(cases[i].text, &err));
        assert_contains(err.text, cases[i].message);
    }
}

static void a_list_has_no_more_stages_than_there_may_be_chunks(void **state)
{
    char text[8192];
    int n = snprintf(text, sizeof(text), "schedule x stages 99 micro-batches 65536\n");
    struct err err = { 0 };

    (void)state;
    for (int s = 0; s <= SCHEDULE_MAX_CHUNKS; s++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "stage %d slots 1\n", s);
    assert_null(read_text(text, &err));
    assert_contains(err.text, "list: line 66: more than 64 stages of one list");
}

/* Whatever the first line promises, room is made for what is there. */
static void a_list_that_is_far_too_short_is_refused_at_once(void **state)
{
    size_t size;
    char *text;
    FILE *file = open_memstream(&text, &size);

    (void)state;
    fprintf(file, "schedule x stages 4096 micro-batches 65536\n");
    for (int s = 0; s < 4096; s++)
        fprintf(file, "stage %d slots 1\n%s%sREDUCE\nSTEP\n", s,
                s ? "RECV 0 0 <- 0\n" : "F 0 0\n", s ? "" : "SEND 0 0 -> 1\n");
    fclose(file);
    check_text(text, "list: stage 0: micro-batch 0 is not complete");
    free(text);
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

static void a_wrong_list_that_is_not_flushed_is_refused_likewise(void **state)
{
    (void)state;
    /* The gradients of a batch are not used yet when the next one's would be added to them. */
    check_text("schedule x stages 2 micro-batches 1 versions 2\nstage 0 slots 1\n"
               "F 0 0\nSEND 0 0 -> 1\nRECV 0 0 <- 1 gradient\nBW 0 0\nBW 1 0\nREDUCE\nSTEP\n"
               "stage 1 slots 1\n"
               "RECV 0 0 <- 0\nF 0 0\nB 0 0\nSEND 0 0 -> 0 gradient\nW 0 0\nREDUCE\nSTEP\n",
               "list: stage 0: BW 1 0: the batch that follows runs forward only");
    /* Samples are read batch by batch. */
    check_text("schedule x stages 2 micro-batches 2 versions 2\nstage 0 slots 2\n"
               "F 0 0\nSEND 0 0 -> 1\nF 2 0\nSEND 2 0 -> 1\nF 1 0\nSEND 1 0 -> 1\n"
               "stage 1 slots 1\nREDUCE\nSTEP\n",
               "list: stage 0: F 1 0: behind a forward of the batch that follows");
    /* An update may be one of all stages. */
    check_text("schedule x stages 2 micro-batches 1 versions 2\nstage 0 slots 1\n"
               "RECV 0 0 <- 1 gradient\nBW 0 0\nREDUCE\nSTEP\nF 1 0\nSEND 1 0 -> 1\n"
               "stage 1 slots 1\nREDUCE\nSTEP\n",
               "REDUCE and STEP end each list");
    /* One slot is not enough for two batches. */
    check_text("schedule x stages 2 micro-batches 1 versions 2\nstage 0 slots 1\n"
               "F 1 0\nSEND 1 0 -> 1\nRECV 0 0 <- 1 gradient\nBW 0 0\nREDUCE\nSTEP\n"
               "stage 1 slots 1\n"
               "RECV 0 0 <- 0\nF 0 0\nB 0 0\nSEND 0 0 -> 0 gradient\nW 0 0\nREDUCE\nSTEP\n",
               "list: stage 0: 2 micro-batches in flight, 1 slots");
    /* Stage 0 runs that forward behind the update that waits for stage 1. */
    check_text("schedule x stages 2 micro-batches 1 versions 2\nstage 0 slots 1\n"
               "F 0 0\nSEND 0 0 -> 1\nRECV 0 0 <- 1 gradient\nBW 0 0\nREDUCE\nSTEP\n"
               "stage 1 slots 1\n"
               "RECV 0 0 <- 0\nF 0 0\nB 0 0\nSEND 0 0 -> 0 gradient\nW 0 0\n"
               "RECV 1 0 <- 0\nF 1 0\nREDUCE\nSTEP\n",
               "list: stage 1 runs 1 forwards of the batch that follows, and stage 0, which feeds "
               "it, 0");
    /* Stage 1 receives none of these three before an update that waits for all. */
    check_text("schedule x stages 2 micro-batches 3 versions 2\nstage 0 slots 3\n"
               "RECV 0 0 <- 1 gradient\nBW 0 0\nRECV 1 0 <- 1 gradient\nBW 1 0\n"
               "RECV 2 0 <- 1 gradient\nBW 2 0\n"
               "F 3 0\nSEND 3 0 -> 1\nF 4 0\nSEND 4 0 -> 1\nF 5 0\nSEND 5 0 -> 1\n"
               "REDUCE\nSTEP\nstage 1 slots 1\n"
               "RECV 0 0 <- 0\nF 0 0\nB 0 0\nSEND 0 0 -> 0 gradient\nW 0 0\n"
               "RECV 1 0 <- 0\nF 1 0\nB 1 0\nSEND 1 0 -> 0 gradient\nW 1 0\n"
               "RECV 2 0 <- 0\nF 2 0\nB 2 0\nSEND 2 0 -> 0 gradient\nW 2 0\nREDUCE\nSTEP\n",
               "list: stage 0 runs 3 forwards of the batch that follows, and stage 1, which "
               "receives from it, 0: more than 2 wait to be received");
}

static void a_wrong_list_of_two_chunks_is_refused_likewise(void **state)
{
    (void)state;
    /* One list with both stages: the second needs what the first sends. */
    check_text("schedule x stages 2 micro-batches 1\nstage 0 slots 1\nstage 1 slots 1\n"
               "RECV 0 1 <- 0\nF 0 1\nF 0 0\nSEND 0 0 -> 1\nREDUCE\nSTEP\n",
               "stage 0: micro-batch 0 is not complete");
    check_text("schedule x stages 2 micro-batches 1\nstage 0 slots 1\nstage 1 slots 1\n"
               "RECV 0 1 <- 0\nF 0 1\nB 0 1\nSEND 0 1 -> 0 gradient\nW 0 1\nF 0 0\n"
               "SEND 0 0 -> 1\nRECV 0 0 <- 1 gradient\nBW 0 0\nREDUCE\nSTEP\n",
               "stage 1: F 0 1: waits for ever");
    check_text("schedule x stages 2 micro-batches 1\nstage 0 slots 1\nstage 1 slots 1\n"
               "F 0 2\nREDUCE\nSTEP\n", "F 0 2: no such chunk");
    /* One SEND too many before the list comes to the first RECV. */
    check_text("schedule x stages 2 micro-batches 3\nstage 0 slots 3\nstage 1 slots 1\n"
               "F 0 0\nSEND 0 0 -> 1\nF 1 0\nSEND 1 0 -> 1\nF 2 0\nSEND 2 0 -> 1\n"
               "RECV 0 1 <- 0\nF 0 1\nB 0 1\nSEND 0 1 -> 0 gradient\nW 0 1\n"
               "RECV 0 0 <- 1 gradient\nBW 0 0\n"
               "RECV 1 1 <- 0\nF 1 1\nB 1 1\nSEND 1 1 -> 0 gradient\nW 1 1\n"
               "RECV 1 0 <- 1 gradient\nBW 1 0\n"
               "RECV 2 1 <- 0\nF 2 1\nB 2 1\nSEND 2 1 -> 0 gradient\nW 2 1\n"
               "RECV 2 0 <- 1 gradient\nBW 2 0\nREDUCE\nSTEP\n",
               "list: stage 0: SEND 2 0 -> 1: waits for ever");
}

static void unknown_names_are_refused(void **state)
{
    struct err err = { 0 };

    (void)state;
    assert_null(schedule_new("zigzag", NULL, 1, 1, NULL, 0, &err));
    assert_contains(err.text, "\"zigzag\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_line_is_named),
        cmocka_unit_test(a_list_has_no_more_stages_than_there_may_be_chunks),
        cmocka_unit_test(a_list_that_is_far_too_short_is_refused_at_once),
        cmocka_unit_test(a_wrong_list_is_refused_by_stage_and_instruction),
        cmocka_unit_test(a_wrong_list_that_is_not_flushed_is_refused_likewise),
        cmocka_unit_test(a_wrong_list_of_two_chunks_is_refused_likewise),
        cmocka_unit_test(unknown_names_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
