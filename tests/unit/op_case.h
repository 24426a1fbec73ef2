/* SPDX-License-Identifier: MIT */
/* Random cases of operators: one small graph around one node each.
 *
 * A case makes a node on random inputs and says nothing about what comes out: the driver
 * (test_ops.c) runs it, compares its gradients with finite differences and the backends with
 * each other. Floating inputs are VALUE_PARAMs, so that all of them have gradients, with the
 * batch where the case puts it.
 */
#ifndef TASUKI_TESTS_OP_CASE_H
#define TASUKI_TESTS_OP_CASE_H

#include <stdint.h>

#include "graph/op.h"

struct op_case {
    struct graph *graph;
    uint64_t random;            /* state of the generator */
    int variant;                /* which of the kind's variants: chooses attributes */
    int node;                   /* the one under test */
    int n_data;
    double **data;              /* of each value that the case made, NULL for others */
    bool gradient;              /* its outputs have gradients to compare */
    bool training;              /* for step_state; true unless the case says no */
    double terms;               /* of the longest sum that may be made in float, if long */
    struct err *err;
};

struct op_kind {
    const char *op;
    int variants;               /* 0 … variants-1 together use every attribute and form */
    void (*make)(struct op_case *c);
};

/* One for each operator that is neither folded nor made by gradients alone; NULL past the end.
 * They stand in op_cases*.c.
 */
const struct op_kind *op_kind_at(int index);
extern const struct op_kind op_kinds[], op_kinds_product[], op_kinds_norm[], op_kinds_math[],
                            op_kinds_element[];
/* Not among them: operators at sizes that a backend cuts into pieces, to compare backends. */
extern const struct op_kind op_kinds_large[];

/* Make case 'variant' of a kind: the same for the same seed, in either type. */
struct op_case *op_case_new(const struct op_kind *kind, int variant, uint64_t seed,
                            enum dtype real);
void op_case_free(struct op_case *c);

/* For the makers ----------------------------------------------------------------------- */

#define DIMS(...) (const int[]){ __VA_ARGS__ }
#define B 0     /* the batch, in a list of dimensions */

static inline bool case_bit(const struct op_case *c, int i)
{
    return c->variant >> i & 1;
}

/* One of 'n', so that consecutive variants / 'every' go through all. */
static inline int case_choose(const struct op_case *c, int every, int n)
{
    return c->variant / every % n;
}

double case_uniform(struct op_case *c, double low, double high);
int case_int(struct op_case *c, int low, int high);     /* both included */
/* A shape; "b" stands where 'dim' is 0: the batch. */
struct shape case_shape(const struct op_case *c, int rank, const int *dim);
/* A floating input of absolute values in [low, high] of either sign (low > 0 keeps it away
 * from kinks), or of positive ones only. 'dim' 0 is the batch axis, none of them: no batch.
 */
int case_real(struct op_case *c, int rank, const int *dim, double low, double high);
int case_positive(struct op_case *c, int rank, const int *dim, double low, double high);
/* All elements differ by 0.05 or more: nothing changes places when one moves a little. */
int case_distinct(struct op_case *c, int rank, const int *dim);
/* One of the integer types: eight consecutive variants have all. */
enum dtype case_integer_type(const struct op_case *c);
/* Integers or booleans in low … high, or from 0 on where the type has no sign. */
int case_integers(struct op_case *c, enum dtype dtype, int rank, const int *dim, int low,
                  int high);
/* The loss's weight_sum. */
int case_weight_sum(struct op_case *c);
/* The node under test, not inferred yet: set attributes, then case_infer(). */
int case_node(struct op_case *c, const char *op, int n_inputs, const int *inputs,
              int n_outputs);
void case_attr(struct op_case *c, const char *name, int64_t value);
void case_list(struct op_case *c, const char *name, int n, const int64_t *values);
void case_infer(struct op_case *c);
/* The node, of one input. */
void case_unary(struct op_case *c, const char *op, int x);
/* An input of some rank, with or without the batch: 4 forms by variant. */
int case_any_real(struct op_case *c, double low, double high);
/* Every form of numpy's broadcast, on either side: 14 by variant. Positive where low > 0. */
void case_two(struct op_case *c, double low, double high, int *a, int *b);

#endif
