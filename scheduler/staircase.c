/* SPDX-License-Identifier: MIT */
#include "scheduler/staircase.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/digits.h"
#include "base/mem.h"

void staircase_add(struct staircase *s, int first, int last, int column, double amount)
{
    for (int row = first; row <= last; row++)
        *(struct stair_amount *)mem_push((void **)&s->amounts, &s->n_amounts,
                                         sizeof(*s->amounts)) =
            (struct stair_amount){ row, column, amount };
}

static struct digits_key *in_order(const struct staircase *s)
{
    struct digits_key *keys = mem_new((size_t)s->n_amounts, sizeof(*keys));

    for (int i = 0; i < s->n_amounts; i++)
        keys[i] = (struct digits_key){ (uint64_t)s->amounts[i].row << 32 |
                                           (uint64_t)s->amounts[i].column,
                                       i };
    digits_sort(&keys, s->n_amounts);
    return keys;
}

void staircase_settle(struct staircase *s, int rows)
{
    struct digits_key *keys;
    int n = 0, row = 0;

    if (s->n_amounts == 0)
        return;
    keys = in_order(s);
    s->stairs = mem_new((size_t)s->n_amounts, sizeof(*s->stairs));
    s->begin = mem_new((size_t)rows + 1, sizeof(*s->begin));
    for (int i = 0; i < s->n_amounts; i++) {
        const struct stair_amount *amount = &s->amounts[keys[i].at];
        double before;

        while (row < amount->row)
            s->begin[++row] = n;
        before = n > s->begin[row] ? s->stairs[n - 1].sum : 0;
        if (n == s->begin[row] || s->stairs[n - 1].column != amount->column)
            s->stairs[n++].column = amount->column;
        s->stairs[n - 1].sum = before + amount->amount;
    }
    while (row < rows)
        s->begin[++row] = n;
    free(keys);
    free(s->amounts);
    s->amounts = NULL;
    s->n_amounts = 0;
}

void staircase_free(struct staircase *s)
{
    free(s->amounts);
    free(s->stairs);
    free(s->begin);
}
