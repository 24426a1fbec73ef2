/* SPDX-License-Identifier: MIT */
/* Commands and their options, from one table.
 *
 * The table (option_table.c) has every option once, with the commands that take it; --help,
 * the shell completion and the man-page check are made from it. A setting's value comes from,
 * in this order: the option, the environment (TASUKI_GLOBAL_BATCH for --global-batch), the
 * user's file (~/.config/tasuki.conf), $(sysconfdir)/tasuki/tasuki.conf, the default.
 * An operand NAME.conf is a job file: its keys are long options, which come right after the
 * command line, and "model", which takes the operand's place.
 */
#ifndef TASUKI_BASE_OPTION_H
#define TASUKI_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct err;

enum command_id {
    COMMAND_TOPO = 1 << 0,
    COMMAND_INSPECT = 1 << 1,
    COMMAND_PLAN = 1 << 2,
    COMMAND_TRAIN = 1 << 3,
    COMMAND_EXPORT = 1 << 4,
    COMMAND_PROFILE = 1 << 5,
    COMMAND_SIMULATE = 1 << 6,
    COMMAND_INFO = 1 << 7,
    COMMAND_IMPORT = 1 << 8,
    COMMAND_WATCH = 1 << 9,
    COMMAND_SUBMIT = 1 << 10,
    COMMAND_ALL = ~0
};

struct option_spec {
    const char *name;       /* "global-batch": --global-batch, TASUKI_GLOBAL_BATCH */
    char letter;            /* 'o': -o; 0: none */
    const char *argument;   /* "N", "FILE", "text|json"; NULL: a flag (--name, --no-name) */
    unsigned commands;
    const char *help;       /* one line */
    bool line_only;         /* only on the command line (-o, --dry-run, …) */
    bool many;              /* may be given several times */
    const char *plain;      /* what it means before another option, or last; NULL: an error */
};
/* The table; NULL past the end. */
const struct option_spec *option_at(int index);

enum option_origin {
    OPTION_DEFAULT, OPTION_SITE_FILE, OPTION_USER_FILE, OPTION_ENVIRONMENT, OPTION_JOB_FILE,
    OPTION_COMMAND_LINE
};

/* What a command line said, completed by environment and files. */
struct options;
/* argv[0] is the command's name. Unknown options, missing arguments and more than
 * 'max_operands' operands are EXIT_USAGE errors that name the nearest known option.
 * --help, --print-config, -q and -v were seen to by main() already.
 */
struct options *options_parse(enum command_id command, int argc, char **argv,
                              int max_operands, struct err *err);
void options_free(struct options *options);
int options_operands(const struct options *options);
const char *options_operand(const struct options *options, int index);
/* What follows "--" of 'submit', as it is: the scheduler's; part of argv. Of other commands these
 * are operands.
 */
int options_rest(const struct options *options, char *const **words);
/* As if the command line had said so, and nothing else; as if nobody had said anything. */
void options_set(struct options *options, const char *name, const char *value);
void options_forget(struct options *options, const char *name);

/* Is it in the command's table? */
bool options_takes(const struct options *options, const char *name);

/* Values; asking for an option that the command's table lacks is a bug (assert). */
bool option_given(const struct options *options, const char *name);
bool option_flag(const struct options *options, const char *name, bool def);
const char *option_string(const struct options *options, const char *name, const char *def);
/* All values of an option that may be given several times; 0 where it was not given. */
int option_strings(const struct options *options, const char *name,
                   const char *const **values);
enum option_origin option_origin(const struct options *options, const char *name);
/* Strict numbers; an error is "--lr: expected …, got …" (or the file and line, or the
 * variable, that it came from) with EXIT_USAGE. Sizes take K, M, G, T (1024) and KB … (1000).
 */
int option_int(const struct options *options, const char *name, int64_t min, int64_t max,
               int64_t def, int64_t *value, struct err *err);
int option_number(const struct options *options, const char *name, double min, double max,
                  double def, double *value, struct err *err);
/* "30" or "30,0.5": the second is 0 where it is left out, both where not given. */
int option_two_numbers(const struct options *options, const char *name, double min, double max,
                       double values[2], struct err *err);
int option_size(const struct options *options, const char *name, double min, double def,
                double *value, struct err *err);
/* "5epochs" (or "1epoch"), "500steps" or "500", which are steps; a count of 'min' or more. */
struct span {
    int64_t n;
    bool epochs;
};
int option_span(const struct options *options, const char *name, int64_t min, struct span def,
                struct span *value, struct err *err);
/* Seconds, or steps where it ends so: "30", "50steps". */
struct period {
    double n;
    bool steps;
};
int option_period(const struct options *options, const char *name, struct period def,
                  struct period *value, struct err *err);
/* "2,1" → {2, 1}; *values is malloc'ed, NULL with n 0 where not given. */
int option_ints(const struct options *options, const char *name, int64_t min, int64_t max,
                int *n, int **values, struct err *err);
/* One of the words of the option's argument ("text|json"); the first is the default. */
int option_word(const struct options *options, const char *name, int *index, struct err *err);
/* The same as text; NULL where it was not given. */
int option_choice(const struct options *options, const char *name, const char **word,
                  struct err *err);

void options_print_settings(const struct options *options, FILE *out);  /* --settings */
/* A job file that gives this run again: operand, and whatever is not a default. */
void options_print_config(const struct options *options, FILE *out);    /* --print-config */
/* "tasuki" and these words as one would type them again, quoted for a shell; malloc'ed. */
char *options_command_line(int argc, char **argv);
/* A word of it; malloc'ed. */
char *options_quote(const char *word);
void options_print_help(enum command_id command, const char *synopsis, FILE *out);

#endif
