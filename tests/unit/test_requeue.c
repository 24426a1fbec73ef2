/* SPDX-License-Identifier: MIT */
/* Which jobs the launcher has started again, with a Slurm that is a list of answers. */
#include "unit.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd_launch.h"
#include "scheduler/slurm/slurm.h"

enum answer_kind { ANSWER_YES, ANSWER_AWAY, ANSWER_NO, ANSWER_ABSENT };

static const enum answer_kind *answers;
static int asked, pauses, restarts, signal_at, signal_is;
static const char *job_state, *batch_host;
static bool may_requeue, is_same_start, gets_on, is_late;

static int answer(struct err *err)
{
    enum answer_kind kind = answers[asked++];

    if (kind == ANSWER_YES)
        return 0;
    err_set(err, "it is not told");
    err->number = kind == ANSWER_AWAY ? SLURM_AWAY : kind == ANSWER_ABSENT ? SLURM_ABSENT : 0;
    return -1;
}

struct slurm_facts *slurm_ask_job(const char *job, struct err *err)
{
    struct slurm_facts *facts;

    (void)job;
    if (answer(err))
        return NULL;
    facts = slurm_facts_new();
    free(facts->state);
    free(facts->batch_host);
    facts->state = mem_strdup(job_state);
    facts->batch_host = mem_strdup(batch_host);
    facts->requeue = may_requeue;
    return facts;
}

int slurm_has_node(const char *job, const char *node, bool *has, struct err *err)
{
    (void)job;
    assert_string_equal(node, "n1");
    *has = true;
    return is_same_start ? 0 : err_set(err, "the job does not run as it did");
}

bool slurm_is_away(const struct err *err)
{
    return err->number == SLURM_AWAY;
}

bool slurm_is_absent(const struct err *err)
{
    return err->number == SLURM_ABSENT;
}

/* A command that fails so often. */
static int commands, failures, failure = EXIT_FAILED;

void launcher_add(struct launcher_words *words, char *word)
{
    static const char *const list[] = { "scontrol", "requeue", "7" };

    assert_string_equal(word, list[words->n++]);
    free(word);
}

pid_t launcher_start(const struct launcher *l, struct launcher_words *words, int output)
{
    (void)l;
    (void)output;
    assert_int_equal(words->n, 3);
    return ++commands;
}

/* The first time that it is asked it has not. */
bool launcher_ended(pid_t child, int *code)
{
    static pid_t seen;

    *code = child <= failures ? failure : EXIT_OK;
    if (seen == child)
        return true;
    seen = child;
    return false;
}

bool launcher_kill(pid_t child, int number)
{
    (void)child;
    (void)number;
    return true;
}

int launcher_next_signal(double seconds)
{
    (void)seconds;
    return is_late ? 0 : signal_is;
}

void launcher_note_signal(struct launcher *l, int number)
{
    l->told = number;
}

int slurm_start_again(const char *job, struct err *err)
{
    (void)job;
    (void)err;
    restarts++;
    return 0;
}

bool launcher_may_start_again(struct launcher *l)
{
    (void)l;
    return gets_on;
}

bool launcher_pause(struct launcher *l, double seconds)
{
    (void)seconds;
    assert_int_equal(l->told, 0);
    if (++pauses == signal_at)
        l->told = signal_is;
    return l->told != 0;
}

static int set_up(void **state)
{
    static const enum answer_kind yes[] = { ANSWER_YES };

    (void)state;
    answers = yes;
    asked = pauses = restarts = signal_at = signal_is = 0;
    is_late = false;
    job_state = "running";
    batch_host = "n1";
    may_requeue = is_same_start = gets_on = true;
    setenv("SLURMD_NODENAME", "n1", 1);
    return 0;
}

static char folder[] = "c";

static int code_after;

static int restarts_of(struct launcher l, int code)
{
    l.job = "7";
    asked = restarts = 0;
    code_after = launcher_requeue(&l, code);
    return restarts;
}

static const struct launcher trains = { .checkpoint = folder, .steps = 1 };

static void a_job_that_has_more_to_do_is_started_again(void **state)
{
    struct launcher limit = trains, late = trains, early = { 0 };

    (void)state;
    assert_int_equal(restarts_of(trains, EXIT_REQUEUE), 1);
    limit.noticed = late.noticed = true;
    limit.told = SIGUSR1;
    assert_int_equal(restarts_of(limit, EXIT_REQUEUE), 1);
    assert_int_equal(restarts_of(early, EXIT_REQUEUE), 1);
    late.told = SIGTERM;
    job_state = "timed out";
    is_same_start = false;
    assert_int_equal(restarts_of(late, EXIT_REQUEUE), 1);
}

static void one_that_is_done_or_was_ended_is_not(void **state)
{
    struct launcher ended = trains, bare = { .steps = 1 };

    (void)state;
    assert_int_equal(restarts_of(trains, EXIT_OK), 0);
    assert_int_equal(restarts_of(trains, EXIT_FAILED), 0);
    assert_int_equal(restarts_of(bare, EXIT_REQUEUE), 0);
    ended.told = SIGINT;
    assert_int_equal(restarts_of(ended, EXIT_REQUEUE), 0);
    assert_int_equal(asked, 0);
    job_state = "cancelled";
    assert_int_equal(restarts_of(trains, EXIT_REQUEUE), 0);
    assert_int_equal(asked, 1);
    ended.told = SIGTERM;
    assert_int_equal(restarts_of(ended, EXIT_REQUEUE), 0);
    assert_int_equal(asked, 1);
}

static void one_that_is_told_to_leave_is_unless_that_brings_nothing(void **state)
{
    struct launcher told = trains;

    (void)state;
    told.told = SIGTERM;
    assert_int_equal(restarts_of(told, EXIT_REQUEUE), 1);
    assert_int_equal(code_after, EXIT_REQUEUE);
    gets_on = false;
    assert_int_equal(restarts_of(told, EXIT_REQUEUE), 0);
    assert_int_equal(asked, 1);
    assert_int_equal(code_after, EXIT_FAILED);
    /* Its limit is near: that is no start in vain. */
    told.noticed = true;
    assert_int_equal(restarts_of(told, EXIT_REQUEUE), 1);
}

static void one_that_may_not_or_goes_on_elsewhere_is_not(void **state)
{
    static const enum answer_kind list[] = { ANSWER_YES, ANSWER_YES };

    (void)state;
    answers = list;
    may_requeue = false;
    assert_int_equal(restarts_of(trains, EXIT_REQUEUE), 0);
    may_requeue = true;
    batch_host = "n2";
    assert_int_equal(restarts_of(trains, EXIT_REQUEUE), 0);
    batch_host = "n1";
    is_same_start = false;
    assert_int_equal(restarts_of(trains, EXIT_REQUEUE), 0);
    assert_int_equal(pauses, 1);
    unsetenv("SLURMD_NODENAME");
    assert_int_equal(restarts_of(trains, EXIT_REQUEUE), 0);
    assert_int_equal(asked, 0);
}

static void a_controller_that_is_away_is_waited_for_also_past_the_limits_signal(void **state)
{
    static const enum answer_kind list[] = { ANSWER_AWAY, ANSWER_AWAY, ANSWER_NO, ANSWER_YES };
    struct launcher l = trains;

    (void)state;
    answers = list;
    l.noticed = true;
    l.told = SIGUSR1;
    signal_at = 1;
    signal_is = SIGUSR1;
    assert_int_equal(restarts_of(l, EXIT_REQUEUE), 1);
    assert_int_equal(pauses, 3);
    pauses = 0;
    signal_is = SIGTERM;
    assert_int_equal(restarts_of(l, EXIT_REQUEUE), 0);
    assert_int_equal(asked, 1);
}

static void one_that_refuses_is_asked_twice(void **state)
{
    static const enum answer_kind list[] = { ANSWER_NO, ANSWER_NO };

    (void)state;
    answers = list;
    assert_int_equal(restarts_of(trains, EXIT_REQUEUE), 0);
    assert_int_equal(asked, 2);
}

static void without_libslurm_the_command_does_it(void **state)
{
    static const enum answer_kind list[] = { ANSWER_ABSENT };
    struct launcher l = trains;

    (void)state;
    answers = list;
    commands = 0;
    failures = 1;
    assert_int_equal(restarts_of(l, EXIT_REQUEUE), 0);
    assert_int_equal(code_after, EXIT_REQUEUE);
    assert_int_equal(commands, 2);
    assert_int_equal(pauses, 1);
    /* Nobody knows who has ended the job. */
    l.told = SIGTERM;
    restarts_of(l, EXIT_REQUEUE);
    assert_int_equal(commands, 2);
    l.noticed = true;
    restarts_of(l, EXIT_REQUEUE);
    assert_int_equal(commands, 3);
    /* It is cancelled meanwhile; the command is not there. */
    failures = 5;
    signal_is = SIGTERM;
    restarts_of(l, EXIT_REQUEUE);
    assert_int_equal(commands, 4);
    signal_is = 0;
    failure = EXIT_USAGE;
    restarts_of(l, EXIT_REQUEUE);
    assert_int_equal(commands, 5);
    failure = EXIT_FAILED;
}

/* What is said meanwhile. */
static char *words_of(struct launcher l)
{
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    char *text = mem_new(4096, 1);

    assert_non_null(file);
    log_setup(LOG_INFO, -1);
    dup2(fileno(file), STDERR_FILENO);
    restarts_of(l, EXIT_REQUEUE);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(file);
    fread(text, 1, 4095, file);
    fclose(file);
    return text;
}

/* Slurm, which has started the job again, ends the command with it, and nobody hears what came of it. */
static void a_command_that_is_ended_with_the_job_may_have_done_it(void **state)
{
    static const enum answer_kind list[] = { ANSWER_ABSENT };
    struct launcher l = trains;
    char *text;

    (void)state;
    answers = list;
    commands = 0;
    failures = 1;
    text = words_of(l);
    assert_contains(text, "job 7: to be continued; Slurm is asked to start it again");
    free(text);
    /* This process is told while the command runs, or a moment after that. */
    failure = 128 + SIGTERM;
    for (int late = 0; late < 2; late++) {
        commands = pauses = 0;
        signal_is = SIGTERM;
        signal_at = late;
        is_late = late;
        text = words_of(l);
        assert_contains(text, "it is not known whether Slurm starts the job again");
        assert_null(strstr(text, "is not started again"));
        assert_int_equal(commands, 1);
        free(text);
    }
    failure = EXIT_FAILED;
    commands = pauses = 0;
    text = words_of(l);
    assert_contains(text, "job 7 is not started again: scontrol could not have that done");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_job_that_has_more_to_do_is_started_again, set_up),
        cmocka_unit_test_setup(one_that_is_done_or_was_ended_is_not, set_up),
        cmocka_unit_test_setup(one_that_is_told_to_leave_is_unless_that_brings_nothing, set_up),
        cmocka_unit_test_setup(one_that_may_not_or_goes_on_elsewhere_is_not, set_up),
        cmocka_unit_test_setup(a_controller_that_is_away_is_waited_for_also_past_the_limits_signal,
                               set_up),
        cmocka_unit_test_setup(one_that_refuses_is_asked_twice, set_up),
        cmocka_unit_test_setup(without_libslurm_the_command_does_it, set_up),
        cmocka_unit_test_setup(a_command_that_is_ended_with_the_job_may_have_done_it, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
