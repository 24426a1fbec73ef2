/* SPDX-License-Identifier: MIT */
/* The table of subcommands. */
#ifndef TASUKI_COMMANDS_H
#define TASUKI_COMMANDS_H

#include "base/option.h"

struct err;

struct command {
    const char *name;
    /* Returns the exit code; where that is not EXIT_OK 'err' may say why in one line. */
    int (*run)(int argc, char **argv, struct err *err);
    const char *summary;
    enum command_id id;
    const char *synopsis;   /* "train [OPTION]... MODEL|PLAN" */
};

extern const struct command commands[]; /* ends with a NULL name */

/* Would train take these, submit's? -1 with 'err' where not. */
int train_accepts(const struct options *options, struct err *err);

int cmd_topo(int argc, char **argv, struct err *err);
int cmd_train(int argc, char **argv, struct err *err);
int cmd_submit(int argc, char **argv, struct err *err);
int cmd_import(int argc, char **argv, struct err *err);
int cmd_export(int argc, char **argv, struct err *err);
int cmd_profile(int argc, char **argv, struct err *err);
int cmd_plan(int argc, char **argv, struct err *err);
int cmd_simulate(int argc, char **argv, struct err *err);
int cmd_info(int argc, char **argv, struct err *err);
int cmd_watch(int argc, char **argv, struct err *err);
int cmd_inspect(int argc, char **argv, struct err *err);

#endif
