/* SPDX-License-Identifier: MIT */
#include "train/run_plot.h"

#include <math.h>
#include <string.h>

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

static void find_range(const double *values, int n, double *low, double *high)
{
    *low = *high = values[0];
    for (int i = 1; i < n; i++) {
        *low = fmin(*low, values[i]);
        *high = fmax(*high, values[i]);
    }
}

/* In halves, as the range itself may overflow. Something is always seen. */
static int height_of(double value, double low, double high, int levels)
{
    double range = high / 2 - low / 2, share = range > 0 ? (value / 2 - low / 2) / range : 0.5;

    return 1 + (int)floor(share * (levels - 1) + 0.5);
}

int run_plot(const struct run_state *state, int rows, int columns, bool utf8,
             char (*lines)[RUN_LINE], double *low, double *high)
{
    const char *const *glyphs = utf8 ? blocks : ascii;
    int parts = utf8 ? 8 : 3, n;
    double values[RUN_PLOT_MOST];

    n = means(state, columns < RUN_PLOT_MOST ? columns : RUN_PLOT_MOST, values);
    if (n == 0 || rows < 1)
        return 0;
    find_range(values, n, low, high);
    for (int row = 0; row < rows; row++) {
        lines[row][0] = '\0';
        for (int c = 0; c < n; c++) {
            int full = height_of(values[c], *low, *high, rows * parts) - (rows - 1 - row) * parts;

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
