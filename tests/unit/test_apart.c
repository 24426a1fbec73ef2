/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <signal.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/mem.h"

static char *say_hello(void *context)
{
    fprintf(stderr, "first line\nlast line\n");
    return mem_printf("hello %s", (const char *)context);
}

static char *crash(void *context)
{
    (void)context;
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
    return NULL;
}

static char *leave(void *context)
{
    fprintf(stderr, "fatal: no configuration\n");
    _exit(*(int *)context);
    return NULL;
}

static char *hang(void *context)
{
    (void)context;
    for (;;)
        pause();
    return NULL;
}

static char *say_much(void *context)
{
    char *text = mem_new(*(size_t *)context + 1, 1);

    memset(text, 'x', *(size_t *)context);
    return text;
}

static struct apart run(char *(*work)(void *), void *context, bool listen)
{
    struct apart result;
    struct err err = { 0 };

    if (apart_run(work, context, work == hang ? 1 : 60, listen, &result, &err))
        fail_msg("%s", err.text);
    return result;
}

static void what_a_child_returns_and_says_last_arrives(void **state)
{
    struct apart result = run(say_hello, (char[]){ "you" }, true);

    (void)state;
    assert_string_equal(result.answer, "hello you");
    assert_string_equal(result.talk, "last line");
    assert_int_equal(result.signal, 0);
    apart_clear(&result);
}

static void a_child_that_crashes_or_leaves_takes_nobody_with_it(void **state)
{
    struct apart result = run(crash, NULL, false);
    int code = 0;

    (void)state;
    assert_int_equal(result.signal, SIGSEGV);
    assert_string_equal(result.answer, "");
    apart_clear(&result);
    result = run(leave, &code, true);
    assert_int_equal(result.signal, 0);
    assert_string_equal(result.answer, "");
    assert_string_equal(result.talk, "fatal: no configuration");
    apart_clear(&result);
}

static void a_child_that_hangs_is_ended(void **state)
{
    struct apart result = run(hang, NULL, true);

    (void)state;
    assert_int_equal(result.signal, SIGALRM);
    assert_string_equal(result.talk, "");
    apart_clear(&result);
}

static void answers_may_be_long(void **state)
{
    size_t size = 3000000;
    struct apart result = run(say_much, &size, false);

    (void)state;
    assert_int_equal(strlen(result.answer), size);
    apart_clear(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_child_returns_and_says_last_arrives),
        cmocka_unit_test(a_child_that_crashes_or_leaves_takes_nobody_with_it),
        cmocka_unit_test(a_child_that_hangs_is_ended),
        cmocka_unit_test(answers_may_be_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
