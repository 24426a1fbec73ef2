/* SPDX-License-Identifier: MIT */
/* A curve in characters. */
#ifndef TASUKI_TRAIN_RUN_PLOT_H
#define TASUKI_TRAIN_RUN_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "train/run_state.h"

#define RUN_PLOT_MOST 400   /* columns */
#define RUN_LINE (4 * RUN_PLOT_MOST + 1)

/* The loss over the steps in 'rows' lines of 'columns' at most, each into 'lines[row]': columns
 * filled up to the mean of their steps, from the lowest to the highest of these means; by their
 * logarithms where these are far apart. In eighths of a character with 'utf8', else in thirds.
 * Returns how many columns there are; 0 where there is nothing to show.
 */
struct run_plot_range {
    double low, high;       /* what bottom and top stand for */
    bool logarithmic;
};
int run_plot(const struct run_state *state, int rows, int columns, bool utf8,
             char (*lines)[RUN_LINE], struct run_plot_range *range);
/* A bar of 'width' characters, 'share' of it full. */
void run_bar(double share, int width, bool utf8, char text[RUN_LINE]);

#endif
