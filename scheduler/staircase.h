/* SPDX-License-Identifier: MIT */
/* A figure of many rows and columns that is a sum of amounts, each of which is there in some rows, in
 * all columns from one on: what an interval [i, j) of blocks receives, say, is in row i what comes
 * from before i for the readers in front of column j. In most networks few values cross a cut, and a
 * row has few steps. Sums of whole numbers are exact.
 */
#ifndef TASUKI_SCHEDULER_STAIRCASE_H
#define TASUKI_SCHEDULER_STAIRCASE_H

struct stair {
    int column;
    double sum;             /* from this column on, up to the next stair's */
};

struct stair_amount {
    int row, column;
    double amount;
};

struct staircase {
    int n_amounts;
    struct stair_amount *amounts;   /* until staircase_settle() */
    struct stair *stairs;   /* row by row, ascending columns */
    int *begin;             /* [rows + 1]: of each row; NULL: the figure is 0 everywhere */
};

/* To a zeroed one: in rows first to last, none where last < first, from a column on; both from 0. */
void staircase_add(struct staircase *s, int first, int last, int column, double amount);
/* Once, after the last amount and before the first question: all rows must be below 'rows'. */
void staircase_settle(struct staircase *s, int rows);
/* What it has; it is not to be used any more. */
void staircase_free(struct staircase *s);

#define STAIRS_LOOKED_AT 8

/* The sum of the amounts at this row and column. */
static inline double staircase_at(const struct staircase *s, int row, int column)
{
    int first, end;

    if (!s->begin)
        return 0;
    first = s->begin[row];
    end = s->begin[row + 1];
    /* The first of them that is behind the column is not in front of 'low', nor behind 'end'. */
    for (int low = first; end - low > STAIRS_LOOKED_AT;) {
        int middle = low + (end - low) / 2;

        if (s->stairs[middle].column > column)
            end = middle;
        else
            low = middle;
    }
    while (end > first && s->stairs[end - 1].column > column)
        end--;
    return end > first ? s->stairs[end - 1].sum : 0;
}

#endif
