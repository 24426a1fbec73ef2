/* SPDX-License-Identifier: MIT */
/* The launcher and a controller of Slurm that is away for a while, which is a list of answers here. */
#include "unit.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "cmd_launch.h"
#include "scheduler/slurm/slurm.h"

enum answer_kind { ANSWER_FACTS, ANSWER_AWAY, ANSWER_NO_JOB, ANSWER_NO_MODULE };

static const enum answer_kind *answers;
static int asked, pauses, restarts, signal_at;
static double paused;
static const char *batch_host, *nodes[2];

struct slurm_facts *slurm_ask_job(const char *job, struct err *err)
{
    static const int numbers[] = { 0, SLURM_AWAY, SLURM_NO_JOB, 0 };
    enum answer_kind kind = answers[asked++];
    struct slurm_facts *facts;

    if (kind != ANSWER_FACTS) {
        err_set(err, "job %s: it is not told", job);
        err->number = numbers[kind];
        return NULL;
    }
    facts = slurm_facts_new();
    free(facts->state);
    free(facts->batch_host);
    facts->state = mem_strdup("running");
    facts->batch_host = mem_strdup(batch_host);
    for (int i = 0; i < 2; i++) {
        struct slurm_node *node =
            mem_push((void **)&facts->nodes, &facts->n_nodes, sizeof(*node));

        *node = (struct slurm_node){ .name = mem_strdup(nodes[i]), .state = mem_strdup("mixed"),
                                     .reason = mem_strdup(""), .features = mem_strdup(""),
                                     .gres = mem_strdup(""), .given = mem_strdup("") };
    }
    return facts;
}

bool slurm_no_job(const struct err *err)
{
    return err->number == SLURM_NO_JOB;
}

bool slurm_is_away(const struct err *err)
{
    return err->number == SLURM_AWAY;
}

int slurm_start_again(const char *job, struct err *err)
{
    (void)job;
    (void)err;
    restarts++;
    return 0;
}

bool launcher_pause(struct launcher *l, double seconds)
{
    paused += seconds;
    if (++pauses == signal_at)
        l->told = SIGUSR1;
    return l->told != 0;
}

static int set_up(void **state)
{
    (void)state;
    asked = pauses = restarts = signal_at = 0;
    paused = 0;
    batch_host = nodes[0] = "n1";
    nodes[1] = "n2";
    setenv("SLURMD_NODENAME", "n1", 1);
    return 0;
}

static void one_that_is_away_is_asked_again_and_given_time_when_it_is_back(void **state)
{
    static const enum answer_kind list[] = { ANSWER_AWAY, ANSWER_AWAY, ANSWER_FACTS };
    struct launcher l = { .job = "7" };
    struct err err = { 0 };

    (void)state;
    answers = list;
    assert_int_equal(launcher_await_controller(&l, &err), 0);
    assert_int_equal(err.code, 0);
    assert_int_equal(asked, 3);
    assert_int_equal(pauses, 3);
    assert_true(paused > 10);
    assert_string_equal(l.home, "n1");
    assert_false(l.replaced);
    free(l.home);
}

static void who_cannot_ask_and_who_was_answered_do_not_wait(void **state)
{
    static const enum answer_kind list[] = { ANSWER_NO_MODULE, ANSWER_NO_JOB, ANSWER_FACTS };
    struct launcher l = { .job = "7" };
    struct slurm_facts *facts;

    (void)state;
    answers = list;
    for (int i = 0; i < 3; i++) {
        struct err err = { 0 };

        facts = launcher_ask_job(&l, &err);
        assert_int_equal(facts != NULL, i == 2);
        assert_int_equal(err.code, i == 2 ? 0 : EXIT_FAILED);
        slurm_facts_free(facts);
    }
    assert_int_equal(pauses, 0);
    free(l.home);
}

static void a_signal_ends_the_wait_for_another_allocation(void **state)
{
    static const enum answer_kind list[] = { ANSWER_AWAY, ANSWER_AWAY, ANSWER_AWAY };
    struct launcher l = { .job = "7" };
    struct err err = { 0 };

    (void)state;
    answers = list;
    signal_at = 2;
    assert_int_equal(launcher_await_controller(&l, &err), -1);
    assert_int_equal(err.code, EXIT_REQUEUE);
    assert_int_equal(asked, 2);
    assert_true(l.replaced);
}

/* At once: Slurm is about to kill this process. */
static void a_job_that_has_lost_the_node_of_its_script_is_started_again(void **state)
{
    static const enum answer_kind list[] = { ANSWER_AWAY, ANSWER_FACTS };
    struct launcher l = { .job = "7" };
    struct err err = { 0 };

    (void)state;
    answers = list;
    nodes[0] = "n3";
    assert_int_equal(launcher_await_controller(&l, &err), -1);
    assert_int_equal(err.code, EXIT_FAILED);
    assert_int_equal(pauses, 1);
    assert_int_equal(restarts, 1);
    assert_true(l.replaced);
    free(l.home);
}

static void a_job_that_was_started_on_another_node_is_left_alone(void **state)
{
    static const enum answer_kind list[] = { ANSWER_FACTS };
    char home[] = "n1";
    struct launcher l = { .job = "7", .home = home };
    struct err err = { 0 };

    (void)state;
    answers = list;
    batch_host = nodes[0] = "n3";
    assert_int_equal(launcher_await_controller(&l, &err), -1);
    assert_non_null(strstr(err.text, "started it again on n3"));
    assert_int_equal(restarts, 0);
    assert_true(l.replaced);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_that_is_away_is_asked_again_and_given_time_when_it_is_back,
                               set_up),
        cmocka_unit_test_setup(who_cannot_ask_and_who_was_answered_do_not_wait, set_up),
        cmocka_unit_test_setup(a_signal_ends_the_wait_for_another_allocation, set_up),
        cmocka_unit_test_setup(a_job_that_has_lost_the_node_of_its_script_is_started_again, set_up),
        cmocka_unit_test_setup(a_job_that_was_started_on_another_node_is_left_alone, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
