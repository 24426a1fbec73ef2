/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <math.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "cmd_launch.h"
#include "scheduler/slurm/facts.h"
#include "train/job_limit.h"
#include "train/step_facts.h"

/* What is asked is answered already: a socket to ask by. */
static int answered(const double *answer)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    if (answer)
        assert_int_equal(send(ends[1], answer, sizeof(*answer), 0), sizeof(*answer));
    else
        close(ends[1]);
    return ends[0];
}

static void expect(const double *answer, double end)
{
    double known = 1000;

    step_facts_ask_again(answered(answer), &known);
    assert_true(known == end);
}

static void an_end_that_was_moved_is_taken_over(void **state)
{
    const double later = 2000, none = 0;

    (void)state;
    expect(&later, 2000);
    expect(&none, 0);
}

static void without_an_answer_the_end_stays(void **state)
{
    const double unknown = NAN;
    double known = 1000;

    (void)state;
    expect(&unknown, 1000);
    expect(NULL, 1000);
    step_facts_ask_again(0, &known);
    assert_true(known == 1000);
}

/* What 'size' bytes say of job 7, after an answer that came too late for an earlier question. */
static enum other_job fate(char answer, size_t size)
{
    const char texts[2] = { answer, 0 };
    double late = 2000;
    int ends[2];
    enum other_job fate;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    assert_int_equal(send(ends[1], &late, sizeof(late), 0), sizeof(late));
    assert_int_equal(send(ends[1], texts, size, 0), (ssize_t)size);
    shutdown(ends[1], SHUT_WR);
    fate = step_facts_other_job(ends[0], "7");
    close(ends[0]);
    close(ends[1]);
    return fate;
}

static void another_job_is_over_only_where_that_is_the_answer(void **state)
{
    (void)state;
    assert_int_equal(fate(OTHER_JOB_OVER, 1), OTHER_JOB_OVER);
    assert_int_equal(fate(OTHER_JOB_UNKNOWN, 1), OTHER_JOB_UNKNOWN);
    assert_int_equal(fate(OTHER_JOB_LIVES, 1), OTHER_JOB_LIVES);
    assert_int_equal(fate(OTHER_JOB_OVER, 2), OTHER_JOB_LIVES);
    assert_int_equal(step_facts_other_job(0, "7"), OTHER_JOB_LIVES);
}

static void who_asks_again_is_for_limits_of_slurm_alone(void **state)
{
    const struct step_facts known = { .end = 9e9, .limit = 600, .asker = 5 };
    struct job_limit limit = { 0 };
    struct err err = { 0 };

    (void)state;
    unsetenv("TASUKI_JOB_END");
    unsetenv("TASUKI_JOB_NOTICE");
    assert_int_equal(job_limit_read(&limit, &known, &err), 0);
    assert_true(limit.end == 9e9 && limit.notice == 120);
    assert_int_equal(limit.asker, 5);
    limit = (struct job_limit){ 0 };
    setenv("TASUKI_JOB_END", "8000000000", 1);
    assert_int_equal(job_limit_read(&limit, &known, &err), 0);
    assert_true(limit.end == 8e9);
    assert_int_equal(limit.asker, 0);
}

static void the_launcher_knows_no_limit_that_is_over_when_it_starts(void **state)
{
    const struct slurm_facts half = { .time_limit = 3600, .time_left = 1800 },
                             over = { .time_limit = 3600, .time_left = 0 };
    struct launcher l = { 0 };
    double now = clock_now();

    (void)state;
    launcher_note_time(&l, &half);
    assert_true(l.notice >= now + 1500 && l.notice < now + 1600);
    assert_int_equal(l.before, 300);
    launcher_note_time(&l, &over);
    assert_true(l.notice == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_that_was_moved_is_taken_over),
        cmocka_unit_test(without_an_answer_the_end_stays),
        cmocka_unit_test(another_job_is_over_only_where_that_is_the_answer),
        cmocka_unit_test(the_launcher_knows_no_limit_that_is_over_when_it_starts),
        cmocka_unit_test(who_asks_again_is_for_limits_of_slurm_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
