/* SPDX-License-Identifier: MIT */
/* An error: one line of text that names the object it is about, and an exit code.
 *
 * Whoever detects an error fills it, once; everybody else passes it up. Functions that can
 * fail take 'struct err *err' as their last argument and return 0/-1 or a pointer/NULL.
 */
#ifndef TASUKI_BASE_ERR_H
#define TASUKI_BASE_ERR_H

#include <stdarg.h>

enum exit_code {
    EXIT_OK = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_FOUND = 3,     /* "the check found a problem" */
    EXIT_REQUEUE = 75   /* "checkpointed, please requeue" */
};

struct err {
    char text[2048];
    enum exit_code code; /* 0 while no error is set */
    int number; /* errno, where opening, reading or writing a file failed; of scheduler/slurm what
                 * driver.h says; else 0 */
};

/* Fill 'err' (which may be NULL) with EXIT_FAILED and a formatted line. Always returns -1. */
int err_set(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with a given exit code, EXIT_USAGE for instance. Always returns -1. */
int err_set_code(struct err *err, enum exit_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "; HINT" behind the text that is already there. Always returns -1. */
int err_hint(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Put "PREFIX: " before the text that is already there. Always returns -1. */
int err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
