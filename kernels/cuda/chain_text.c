/* SPDX-License-Identifier: MIT */
/* The text of a chain's kernel: behind what chain.cuh and the files that it includes have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/chain.h"

static const char *const functions[] = {
#define NAME(name) #name,
    CUDA_FUNCTIONS(NAME)
#undef NAME
};

static const char *type_of(const struct chain *c, bool narrow)
{
    return !narrow ? "float" : c->type == CUDA_FLOAT16 ? "float16" : "bfloat";
}

/* Elements that a thread takes at a time. */
static int width_of(const struct chain *c)
{
    bool narrow = c->members[c->n_members - 1].narrow;

    for (int i = 0; i < c->n_inputs; i++)
        narrow |= c->inputs[i].narrow;
    return CUDA_WORD / (narrow ? (int)CUDA_NARROW_BYTES : (int)sizeof(float));
}

static unsigned bits_of(float x)
{
    unsigned bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static void write_operand(FILE *out, const struct chain_operand *o)
{
    if (o->from == CHAIN_NOTHING)
        fputs("0.0f", out);
    else
        fprintf(out, "%c%d", o->from == CHAIN_MEMBER ? 'v' : 'x', o->index);
}

static void write_value(FILE *out, const struct chain_member *m, bool last)
{
    if (m->sum) {
        fputs(last ? "old" : "0.0f", out);
        for (int i = 0; i < m->n; i++) {
            fputs(" + ", out);
            write_operand(out, &m->operands[i]);
        }
        return;
    }
    fprintf(out, "pointwise_%s(", functions[m->function]);
    for (int i = 0; i < 3; i++) {
        const struct chain_operand nothing = { CHAIN_NOTHING, 0 };

        write_operand(out, i < m->n ? &m->operands[i] : &nothing);
        fputs(", ", out);
    }
    fprintf(out, "chain_bits(0x%xu), chain_bits(0x%xu))", bits_of(m->p), bits_of(m->q));
}

/* Of one element: a sum goes on from what it is added to, as one that is no chain does. */
static void write_members(FILE *out, const struct chain *c)
{
    fputs("CUDA_DEVICE float chain_of(", out);
    for (int i = 0; i < c->n_inputs; i++)
        fprintf(out, "float x%d, ", i);
    fputs("float old, bool add)\n{\n", out);
    for (int i = 0; i < c->n_members; i++) {
        const struct chain_member *m = &c->members[i];
        bool last = i == c->n_members - 1;

        fprintf(out, "    float v%d = ", i);
        if (!last)
            fprintf(out, "chain_kept<%s>(", type_of(c, m->narrow));
        write_value(out, m, last);
        fputs(last ? ";\n" : ");\n", out);
    }
    if (c->members[c->n_members - 1].sum)
        fprintf(out, "    (void)add;\n    return v%d;\n}\n", c->n_members - 1);
    else
        fprintf(out, "    return add ? old + real_apart(v%d) : v%d;\n}\n", c->n_members - 1, c->n_members - 1);
}

/* Where the operand of element e is. Divisions by constants are fast. */
static void write_place(FILE *out, int i, const struct cuda_walk *w)
{
    const char *index = w->elements < (int64_t)1 << 31 ? "uint32_t" : "int64_t";

    fprintf(out, "CUDA_DEVICE int64_t chain_place%d(int64_t element)\n{\n"
                 "    %s e = (%s)element, next;\n    int64_t at = %lld;\n", i, index, index,
            (long long)w->start[0]);
    for (int k = w->rank - 1; k > 0; k--)
        fprintf(out, "    next = e / %lld;\n    at += (int64_t)(e - next * %lld) * %lld;\n    e = next;\n",
                (long long)w->dim[k], (long long)w->dim[k], (long long)w->stride[0][k]);
    fprintf(out, "    return at + (int64_t)e * %lld;\n}\n", (long long)w->stride[0][0]);
}

/* May N neighbours always be found from the first of them? */
static bool goes_along(const struct chain *c, int width)
{
    for (int i = 0; i < c->n_inputs; i++) {
        const struct cuda_walk *w = &c->inputs[i].walk;

        if (!w->flat && w->dim[w->rank - 1] % width != 0)
            return false;
    }
    return true;
}

static void write_arguments(FILE *out, const struct chain *c, const char *behind)
{
    for (int i = 0; i < c->n_inputs; i++)
        fprintf(out, "x%d%s, ", i, behind);
}

/* The i-th N elements. */
static void write_run(FILE *out, const struct chain *c)
{
    const char *result = type_of(c, c->members[c->n_members - 1].narrow);

    fputs("CUDA_DEVICE void chain_run(const struct cuda_chain &l, int64_t i)\n{\n    float y[N], old[N]", out);
    for (int i = 0; i < c->n_inputs; i++)
        fprintf(out, ", x%d[N]", i);
    fputs(";\n", out);
    for (int i = 0; i < c->n_inputs; i++) {
        const struct chain_input *x = &c->inputs[i];
        const char *type = type_of(c, x->narrow);

        if (x->walk.flat)
            fprintf(out, "    chain_read<%s, N>(l.in[%d], i, x%d);\n", type, i, i);
        else
            fprintf(out, "    chain_along<%s, N>(l.in[%d], chain_place%d(i * N), %lld, x%d);\n", type, i,
                    i, (long long)x->walk.stride[0][x->walk.rank - 1], i);
    }
    fprintf(out, "    chain_old<%s, N>(l, i, old);\n", result);
    fputs("    CUDA_UNROLL_ALL\n    for (int k = 0; k < N; k++)\n        y[k] = chain_of(", out);
    write_arguments(out, c, "[k]");
    fprintf(out, "old[k], l.add);\n    chain_write<%s, N>(l, i, y);\n}\n", result);
}

static void write_one(FILE *out, const struct chain *c)
{
    const char *result = type_of(c, c->members[c->n_members - 1].narrow);

    fputs("CUDA_DEVICE void chain_one(const struct cuda_chain &l, int64_t e)\n{\n", out);
    for (int i = 0; i < c->n_inputs; i++) {
        fprintf(out, "    float x%d = chain_at<%s>(l.in[%d], ", i, type_of(c, c->inputs[i].narrow), i);
        if (c->inputs[i].walk.flat)
            fputs("e);\n", out);
        else
            fprintf(out, "chain_place%d(e));\n", i);
    }
    fprintf(out, "    %s *out = (%s *)l.out + e;\n\n    put_real(out, chain_of(", result, result);
    write_arguments(out, c, "");
    fputs("l.add ? real_of(*out) : 0, l.add));\n}\n", out);
}

static void write_kernel(FILE *out, const struct chain *c, int width)
{
    fputs("CUDA_KERNEL(tasuki_chain, cuda_chain)\n{\n    bool wide = ", out);
    fputs(goes_along(c, width) ? "chain_has_words(l.out)" : "false", out);
    for (int i = 0; i < c->n_inputs; i++)
        if (c->inputs[i].walk.flat)
            fprintf(out, " && chain_has_words(l.in[%d])", i);
    fputs(";\n    int64_t runs = wide ? l.elements / N : 0;\n\n"
          "    CUDA_EACH(i, runs)\n        chain_run(l, i);\n"
          "    CUDA_EACH(i, l.elements - N * runs)\n        chain_one(l, N * runs + i);\n}\n", out);
}

char *chain_text(const struct chain *chain)
{
    int width = width_of(chain);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    fprintf(out, "#define N %d\n", width);
    write_members(out, chain);
    for (int i = 0; i < chain->n_inputs; i++)
        if (!chain->inputs[i].walk.flat)
            write_place(out, i, &chain->inputs[i].walk);
    write_run(out, chain);
    write_one(out, chain);
    write_kernel(out, chain, width);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}
