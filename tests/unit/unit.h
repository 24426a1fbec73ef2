/* SPDX-License-Identifier: MIT */
/* cmocka with what it needs, and helpers that all unit tests share. */
#ifndef TASUKI_TESTS_UNIT_H
#define TASUKI_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"

/* Fails the test in any thread: cmocka's own checks are for the main one. 'err' says why. */
#define MUST(holds)                                                                       \
    do {                                                                                  \
        if (!(holds)) {                                                                   \
            fprintf(stderr, "%s: line %d: %s: %s\n", __FILE__, __LINE__, #holds,          \
                    err->text);                                                           \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

#define assert_contains(text, part)                                                       \
    do {                                                                                  \
        if (!strstr((text), (part)))                                                      \
            fail_msg("\"%s\" does not contain \"%s\"", (text), (part));                   \
    } while (0)

/* A fresh directory under $TMPDIR or /tmp; the test removes it. */
static inline char *unit_directory(void)
{
    const char *base = getenv("TMPDIR");
    static char path[512];

    snprintf(path, sizeof(path), "%s/tasuki-test.XXXXXX", base && base[0] ? base : "/tmp");
    if (!mkdtemp(path))
        fail_msg("mkdtemp: %s", path);
    return path;
}

/* With all that is in it: what a teardown returns. */
static inline int unit_remove(const char *directory)
{
    char command[600];

    snprintf(command, sizeof(command), "rm -r '%s'", directory);
    return system(command);
}

static inline void unit_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    if (!file || fputs(text, file) < 0 || fclose(file))
        fail_msg("cannot write %s", path);
}

/* How many of 'n' cases a test tries: TASUKI_TEST_PROBLEMS in a hundred, where it is slow, or all are
 * tried by another build.
 */
static inline unsigned some_of(unsigned n)
{
    const char *share = getenv("TASUKI_TEST_PROBLEMS");
    unsigned some = share ? n * (unsigned)atoi(share) / 100 : n;

    return some > 0 ? some : 1;
}

/* From one case that is tried to the next, where they are to be spread over all 'n'. */
static inline int some_apart(int n)
{
    return n / (int)some_of((unsigned)n);
}

#endif
