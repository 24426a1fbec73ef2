/* SPDX-License-Identifier: MIT */
/* What a run is doing, for people and for programs. */
#ifndef TASUKI_TRAIN_RUN_VIEW_H
#define TASUKI_TRAIN_RUN_VIEW_H

#include <stdbool.h>

#include <jansson.h>

#include "train/run_state.h"

#define RUN_WIDTH 80

struct run_view {
    const char *log;        /* its name */
    int width, height;      /* height 0: as many lines as there are */
    bool utf8;
    bool live;              /* the last line says how to leave */
    bool found;             /* the log is there */
    double age;             /* seconds since the log was last written */
};

/* Lines that end in a newline, none wider and no more than there is room for; malloc'ed. */
char *run_view_text(const struct run_state *state, const struct run_view *view);
/* "tasuki-watch"; see tasuki-watch(1). */
json_t *run_view_json(const struct run_state *state, const char *log);

#endif
