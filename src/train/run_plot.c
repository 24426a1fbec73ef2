/* SPDX-License-Identifier: MIT */
#include "train/run_plot.h"

#include <math.h>
#include <string.h>

#define FAR 20      /* times the lowest: by logarithms */

static const char *const blocks[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
static const char *const ascii[] = { " ", ".", ":", "#" };

/* Means of the points of each column; how many columns there are. */
static int means(const struct run_state *s, int columns, double *values)
{
    int n = s->n_points < columns ? s->n_points : columns;

    for (int c = 0; c < n; c++) {
        int first = (int)((long long)c * s->n_points / n);
        int end = (int)((long long)(c + 1) * s->n_points / n);
        double sum = 0;

        for (int i = first; i < end; i++)
            sum += s->points[i].loss / (end - first);
        values[c] = sum;
    }
    return n;
}

static struct run_plot_range range_of(const double *values, int n)
{
    struct run_plot_range range = { .low = values[0], .high = values[0] };

    for (int i = 1; i < n; i++) {
        range.low = fmin(range.low, values[i]);
        range.high = fmax(range.high, values[i]);
    }
    range.logarithmic = range.low > 0 && range.high / range.low >= FAR;
    return range;
}

/* From 0 to 1. In halves, as the difference itself may overflow. */
static double height_of(double value, const struct run_plot_range *range)
{
    double part = value / 2 - range->low / 2, all = range->high / 2 - range->low / 2;

    if (range->logarithmic) {
        part = log(value) - log(range->low);
        all = log(range->high) - log(range->low);
    }
    return all > 0 ? fmax(0, fmin(1, part / all)) : 0.5;
}

int run_plot(const struct run_state *state, int rows, int columns, bool utf8,
             char (*lines)[RUN_LINE], struct run_plot_range *range)
{
    const char *const *glyphs = utf8 ? blocks : ascii;
    int parts = utf8 ? 8 : 3, n;
    double values[RUN_PLOT_MOST];

    n = means(state, columns < RUN_PLOT_MOST ? columns : RUN_PLOT_MOST, values);
    if (n <= 0 || rows < 1)
        return 0;
    *range = range_of(values, n);
    for (int row = 0; row < rows; row++) {
        lines[row][0] = '\0';
        for (int c = 0; c < n; c++) {
            double share = height_of(values[c], range);
            /* Something is always seen. */
            int full = 1 + (int)floor(share * (rows * parts - 1) + 0.5);

            full -= (rows - 1 - row) * parts;
            strcat(lines[row], glyphs[full < 0 ? 0 : full > parts ? parts : full]);
        }
    }
    return n;
}

void run_bar(double share, int width, bool utf8, char text[RUN_LINE])
{
    int full = share > 0 ? (int)floor(fmin(share, 1) * width + 0.5) : 0;

    text[0] = '\0';
    if (width > RUN_PLOT_MOST)
        width = RUN_PLOT_MOST;
    for (int i = 0; i < width; i++)
        strcat(text, i < full ? (utf8 ? "█" : "#") : (utf8 ? "░" : "-"));
}
