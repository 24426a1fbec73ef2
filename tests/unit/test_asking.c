/* SPDX-License-Identifier: MIT */
/* The launcher asks nodes by an srun that is a script here: nodes called "dead…" say nothing, for those
 * called "gone…" srun ends without an answer, others answer a moment later.
 */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "cmd_launch.h"

#define NODES 40
#define FEW 12
#define SILENT 2

static const char srun[] =
    "#!/bin/sh\n"
    "for word; do case $word in --nodelist=*) list=${word#*=} ;; esac; done\n"
    "case $list in *,*) echo 'one of them is away'; exit 1 ;; esac\n"
    "case $list in gone*) exit 1 ;; dead*) echo >>\"$ASKED/dead\"; exec sleep 600 ;; esac\n"
    "touch \"$ASKED/$$.now\"\n"
    "ls \"$ASKED\" | grep -c now >>\"$ASKED/counts\"\n"
    "sleep 0.1\n"
    "printf '{\"schema\": \"tasuki-health\", \"node\": \"%s\", \"cpus\": 4, \"memory\": 1.0,' $list\n"
    "printf ' \"gpus\": -1, \"driver\": \"\", \"trouble\": \"\", \"missing\": \"\", \"limit\": 1.0,'\n"
    "printf ' \"grouped\": false, \"group_ended\": -1, \"ended\": -1}\\n'\n"
    "rm \"$ASKED/$$.now\"\n";

/* What follows the options of srun does not matter here. */
void launcher_add_training(struct launcher_words *words, const struct launcher *l, bool resume)
{
    (void)resume;
    launcher_add(words, mem_strdup(l->program));
}

struct asked {
    char folder[64], program[8];
    struct launcher launcher;
    char *names[NODES];
    struct answer *answers;
};

/* The first nodes say nothing, so many of them. */
struct silence {
    int n;
    const char *name;
};

static int set_up(void **state)
{
    const struct silence *silence = *state;
    struct asked *a = mem_new(1, sizeof(*a));
    char *path, *all;
    FILE *file;

    strcpy(a->folder, "/tmp/tasuki-asking-XXXXXX");
    strcpy(a->program, "tasuki");
    assert_non_null(mkdtemp(a->folder));
    path = mem_printf("%s/srun", a->folder);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(srun, file);
    fclose(file);
    assert_int_equal(chmod(path, 0700), 0);
    all = mem_printf("%s:%s", a->folder, getenv("PATH"));
    setenv("PATH", all, 1);
    setenv("ASKED", a->folder, 1);
    free(all);
    free(path);
    a->launcher = (struct launcher){ .program = a->program };
    for (int i = 0; i < NODES; i++)
        a->names[i] = mem_printf("%s%d", i < silence->n ? silence->name : "n", i);
    a->answers = mem_new(NODES, sizeof(*a->answers));
    launcher_take_signals();
    *state = a;
    return 0;
}

static int tear_down(void **state)
{
    struct asked *a = *state;
    char *command = mem_printf("rm -r '%s'", a->folder);

    launcher_answers_free(NODES, a->answers);
    for (int i = 0; i < NODES; i++)
        free(a->names[i]);
    assert_int_equal(system(command), 0);
    free(command);
    free(a);
    return 0;
}

static int lines_of(const struct asked *a, const char *name)
{
    char *path = mem_printf("%s/%s", a->folder, name);
    FILE *file = fopen(path, "r");
    int c, n = 0;

    assert_non_null(file);
    while ((c = fgetc(file)) != EOF)
        n += c == '\n';
    fclose(file);
    free(path);
    return n;
}

/* How many of those that answer were asked at a time, at most. */
static int most_at_once(const struct asked *a)
{
    char *path = mem_printf("%s/counts", a->folder);
    FILE *file = fopen(path, "r");
    int n, most = 0;

    assert_non_null(file);
    while (fscanf(file, "%d", &n) == 1)
        most = n > most ? n : most;
    fclose(file);
    free(path);
    return most;
}

/* Seconds since 1970 at which the last of those that answer was done: its file was removed. */
static double last_answer(const struct asked *a)
{
    struct stat status;

    assert_int_equal(stat(a->folder, &status), 0);
    return (double)status.st_mtim.tv_sec + 1e-9 * (double)status.st_mtim.tv_nsec;
}

/* The dead ones, which come first, hold a place each of the few there are, but nobody else: the
 * others go through those that are left while their time lasts.
 */
static void of_many_nodes_each_has_its_own_time_from_when_it_is_asked(void **state)
{
    const struct launcher_patience patience = { .first = 30, .silence = 20, .each = 12,
                                                .at_once = 4, .tries = 1 };
    struct asked *a = *state;
    struct err err = { 0 };
    struct timespec now;
    double start = clock_now(), seconds;

    clock_gettime(CLOCK_REALTIME, &now);
    assert_true(launcher_ask(&a->launcher, &patience, FEW, a->names, a->answers, &err));
    seconds = clock_now() - start;
    for (int i = 0; i < FEW; i++) {
        assert_int_equal(a->answers[i].there, i >= SILENT);
        assert_true(a->answers[i].asked);
        if (i >= SILENT)
            assert_string_equal(a->answers[i].health.node, a->names[i]);
    }
    assert_true(last_answer(a) - (double)now.tv_sec < patience.each);
    assert_true(seconds >= patience.each);
    assert_true(seconds < 2 * patience.each);
    assert_in_range(most_at_once(a), 2, patience.at_once);
}

/* As where the controller hangs: that is no fault of theirs. */
static void where_none_of_a_pool_answers_no_more_are_asked_and_none_is_silent(void **state)
{
    const struct launcher_patience patience = { .first = 5, .silence = 5, .each = 1,
                                                .at_once = 8, .tries = 2 };
    struct asked *a = *state;
    struct err err = { 0 };

    assert_false(launcher_ask(&a->launcher, &patience, NODES, a->names, a->answers, &err));
    assert_true(lines_of(a, "dead") <= patience.at_once * patience.tries);
    for (int i = 0; i < NODES; i++) {
        assert_false(a->answers[i].there);
        assert_false(a->answers[i].asked);
    }
}

static void nodes_that_are_silent_while_the_own_one_is_not_count_as_asked(void **state)
{
    const struct launcher_patience patience = { .first = 60, .silence = 60, .each = 60,
                                                .at_once = 16, .tries = 1 };
    struct asked *a = *state;
    struct err err = { 0 };

    a->launcher.home = a->names[NODES - 1];
    assert_true(launcher_ask(&a->launcher, &patience, NODES, a->names, a->answers, &err));
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(a->answers[i].there, i == NODES - 1);
        assert_true(a->answers[i].asked);
    }
}

/* As where there is no room for another process: none of them counts as silent. */
static void a_node_that_could_not_be_asked_was_not_asked(void **state)
{
    const struct launcher_patience patience = { .first = 5, .silence = 5, .each = 5,
                                                .at_once = 8, .tries = 2 };
    struct asked *a = *state;
    struct err err = { 0 };
    struct rlimit before, none;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    launcher_ask(&a->launcher, &patience, NODES, a->names, a->answers, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 0; i < NODES; i++) {
        assert_false(a->answers[i].there);
        assert_false(a->answers[i].asked);
        assert_string_equal(a->answers[i].talk, strerror(EMFILE));
    }
}

/* Before the first try of those that are silent the controller answers, then not any more. */
static int awaits;

static int answers_once(struct launcher *l, struct err *err)
{
    (void)l;
    return ++awaits == 1 ? 0 : err_set(err, "the controller is away");
}

static void where_the_controller_is_away_between_tries_no_node_is_silent(void **state)
{
    const struct launcher_patience patience = { .first = 60, .silence = 60, .each = 60,
                                                .at_once = 40, .tries = 2,
                                                .await = answers_once };
    struct asked *a = *state;
    struct err err = { 0 };

    awaits = 0;
    assert_false(launcher_ask(&a->launcher, &patience, NODES, a->names, a->answers, &err));
    assert_int_equal(awaits, 2);
    assert_string_equal(err.text, "the controller is away");
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(a->answers[i].there, i >= SILENT);
        assert_false(a->answers[i].asked);
    }
}

static pid_t sleeper(void)
{
    pid_t child = fork();

    if (child == 0) {
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
        pause();
        _exit(0);
    }
    assert_true(child > 0);
    return child;
}

/* The child says who may trace it once it runs. 0, or why not. */
static int seize(pid_t child)
{
    double end = clock_now() + 1;

    while (ptrace(PTRACE_SEIZE, child, NULL, NULL) < 0) {
        if (clock_now() >= end)
            return errno;
        usleep(1000);
    }
    return 0;
}

static void end_child(pid_t child)
{
    int status;

    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

/* Traced by a process that never looks, a dead one is not handed on to its parent. 0: none may be
 * traced here, for the reason '*why'.
 */
static pid_t hold(pid_t child, int *why)
{
    int ends[2];
    pid_t tracer;

    assert_int_equal(pipe(ends), 0);
    tracer = fork();
    if (tracer == 0) {
        *why = seize(child);
        if (write(ends[1], why, sizeof(*why)) == (ssize_t)sizeof(*why))
            pause();
        _exit(0);
    }
    assert_true(tracer > 0);
    close(ends[1]);
    assert_int_equal(read(ends[0], why, sizeof(*why)), sizeof(*why));
    close(ends[0]);
    if (*why) {
        end_child(tracer);
        tracer = 0;
    }
    return tracer;
}

static void what_is_killed_and_does_not_end_is_waited_for_in_bounded_time(void **state)
{
    pid_t child = sleeper(), tracer;
    double start;
    int why;

    (void)state;
    assert_true(launcher_kill(child, SIGKILL));
    child = sleeper();
    tracer = hold(child, &why);
    if (!tracer) {
        end_child(child);
        print_message("# no process may be traced here, as under qemu: %s\n", strerror(why));
        return;
    }
    start = clock_now();
    assert_false(launcher_kill(child, SIGKILL));
    assert_true(clock_now() - start < 30);
    end_child(tracer);
    end_child(child);
}

int main(void)
{
    static struct silence some = { SILENT, "dead" }, all = { NODES, "dead" },
                          some_gone = { SILENT, "gone" }, all_but_one_gone = { NODES - 1, "gone" };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate_setup_teardown(
            of_many_nodes_each_has_its_own_time_from_when_it_is_asked, set_up, tear_down, &some),
        cmocka_unit_test_prestate_setup_teardown(
            where_none_of_a_pool_answers_no_more_are_asked_and_none_is_silent, set_up, tear_down,
            &all),
        cmocka_unit_test_prestate_setup_teardown(
            nodes_that_are_silent_while_the_own_one_is_not_count_as_asked, set_up, tear_down,
            &all_but_one_gone),
        cmocka_unit_test_prestate_setup_teardown(a_node_that_could_not_be_asked_was_not_asked,
                                                 set_up, tear_down, &some),
        cmocka_unit_test_prestate_setup_teardown(
            where_the_controller_is_away_between_tries_no_node_is_silent, set_up, tear_down,
            &some_gone),
        cmocka_unit_test(what_is_killed_and_does_not_end_is_waited_for_in_bounded_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
