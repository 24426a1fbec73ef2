/* SPDX-License-Identifier: MIT */
#include "train/buckets.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/order.h"
#include "scheduler/stage.h"

/* What a group sums, for comparing. */
struct print {
    uint64_t members, content;
};

static bool *add_group(struct buckets *b)
{
    size_t n = (size_t)b->n_stages;
    bool *group;

    b->groups = mem_resize(b->groups, (size_t)(b->n_groups + 1) * n, sizeof(*b->groups));
    group = b->groups + (size_t)b->n_groups++ * n;
    memset(group, 0, n * sizeof(*group));
    return group;
}

static void add_range(struct buckets *b, const struct compiled *c, int state, int gradient,
                      int group)
{
    int root = c->program->values[gradient].root;
    const struct program_value *v = &c->program->values[root];
    struct bucket_range *r = mem_push((void **)&b->ranges, &b->n_ranges, sizeof(*r));

    *r = (struct bucket_range){ .offset = v->offset, .bytes = v->layout.bytes, .value = root,
                                .state = state, .group = group };
}

static int by_param(const void *a, const void *b)
{
    const struct param_grad *x = a, *y = b;

    return x->param != y->param ? (x->param < y->param ? -1 : 1) : x->stage - y->stage;
}

static struct param_grad *sort_params(const struct autodiff *ad)
{
    struct param_grad *sorted = mem_new((size_t)ad->n_params, sizeof(*sorted));

    if (ad->n_params) {
        memcpy(sorted, ad->params, (size_t)ad->n_params * sizeof(*sorted));
        order_sort(sorted, (size_t)ad->n_params, sizeof(*sorted), by_param);
    }
    return sorted;
}

/* The group of the stages that read one parameter. */
static int add_tied(struct buckets *b, const struct param_grad *params, int n)
{
    bool *in = add_group(b);

    for (int i = 0; i < n; i++)
        in[params[i].stage] = true;
    return b->n_groups - 1;
}

static void find_ranges(struct buckets *b, const struct compiled *c)
{
    const struct autodiff *ad = &c->autodiff;
    struct param_grad *params = sort_params(ad);

    add_group(b)[c->stage] = true;
    for (int i = 0, end; i < ad->n_params; i = end) {
        int group = 0;

        for (end = i + 1; end < ad->n_params && params[end].param == params[i].param;)
            end++;
        if (end - i > 1)
            group = add_tied(b, &params[i], end - i);
        for (int k = i; k < end; k++)
            if (params[k].stage == c->stage)
                add_range(b, c, params[k].param, params[k].gradient, group);
    }
    for (int i = 0; i < ad->n_stats; i++)
        if (ad->stats[i].stage == c->stage)
            add_range(b, c, ad->stats[i].stat, ad->stats[i].contribution, 0);
    free(params);
}

static int by_offset(const void *a, const void *b)
{
    const struct bucket_range *x = a, *y = b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void cut(struct buckets *b, size_t limit)
{
    for (int i = 0; i < b->n_ranges; i++) {
        const struct bucket_range *r = &b->ranges[i];
        struct bucket_cut *last = b->n_cuts ? &b->cuts[b->n_cuts - 1] : NULL;

        if (!last || r->group != last->group || r->offset + r->bytes - last->offset > limit) {
            last = mem_push((void **)&b->cuts, &b->n_cuts, sizeof(*last));
            *last = (struct bucket_cut){ .offset = r->offset, .group = r->group, .first = i };
        }
        last->bytes = r->offset + r->bytes - last->offset;
        last->n++;
    }
}

static size_t most_bytes(const struct compiled *c)
{
    return (size_t)stage_bucket_bytes((double)c->program->gradient_bytes);
}

void buckets_make(struct buckets *buckets, const struct compiled *compiled, int n_stages,
                  size_t limit)
{
    *buckets = (struct buckets){ .n_stages = n_stages };
    if (limit == 0)
        limit = most_bytes(compiled);
    find_ranges(buckets, compiled);
    order_sort(buckets->ranges, (size_t)buckets->n_ranges, sizeof(*buckets->ranges), by_offset);
    cut(buckets, limit);
}

void buckets_clear(struct buckets *buckets)
{
    free(buckets->groups);
    free(buckets->ranges);
    free(buckets->cuts);
    *buckets = (struct buckets){ 0 };
}

static bool contains(const int *ranks, int n, int rank)
{
    for (int i = 0; i < n; i++)
        if (ranks[i] == rank)
            return true;
    return false;
}

int buckets_ranks(const struct buckets *buckets, int group, const struct placement *placement,
                  int *ranks)
{
    const bool *in = buckets->groups + (size_t)group * (size_t)buckets->n_stages;
    int n = 0, count;

    for (int s = 0; s < buckets->n_stages; s++) {
        const int *of_stage = placement_stage(placement, s, &count);

        for (int i = 0; in[s] && i < count; i++)
            if (!contains(ranks, n, of_stage[i]))
                ranks[n++] = of_stage[i];
    }
    return n;
}

/* Is there a stage before this one that is in the group and that the same ranks run? */
static bool has_earlier(const struct buckets *b, int group, const struct plan *plan, int stage)
{
    for (int s = 0; s < stage; s++)
        if (b->groups[group * b->n_stages + s] && plan_list(plan, s) == plan_list(plan, stage))
            return true;
    return false;
}

int buckets_members(const struct buckets *buckets, int group, const struct plan *plan)
{
    int n = 0;

    for (int s = 0; s < buckets->n_stages; s++)
        if (buckets->groups[group * buckets->n_stages + s] &&
            !has_earlier(buckets, group, plan, s))
            n += plan->pipelines * plan->stages[s].replicas;
    return n;
}

/* What stages share has one bucket, or is summed once for all stages of a rank (ties.h). */
static struct bucket_scratch scratch_of(const struct buckets *b, const struct compiled *c,
                                        const struct plan *plan, int group)
{
    size_t bytes = group == 0 ? most_bytes(c) : 0;
    int n = buckets_members(b, group, plan);

    if (n < 2 || !b->groups[group * b->n_stages + c->stage] ||
        has_earlier(b, group, plan, c->stage))
        return (struct bucket_scratch){ 0, 0, 0 };
    for (int i = 0; i < b->n_ranges && group > 0; i++)
        if (b->ranges[i].group == group)
            bytes = b->ranges[i].bytes < SUMS_TIED ? b->ranges[i].bytes : SUMS_TIED;
    return (struct bucket_scratch){ 0, sums_scratch(bytes, n), group == 0 ? SUMS_AT_ONCE : 1 };
}

struct bucket_scratch buckets_scratch(const struct buckets *buckets,
                                      const struct compiled *compiled, const struct plan *plan,
                                      int group)
{
    struct bucket_scratch s = { 0, 0, 0 };
    size_t at = 0;

    for (int g = 0; g <= group; g++) {
        at += (size_t)s.n * s.bytes;
        s = g < buckets->n_groups ? scratch_of(buckets, compiled, plan, g)
                                  : (struct bucket_scratch){ 0, 0, 0 };
    }
    s.at = at;
    return s;
}

/* Comparing --------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t mix_cut(uint64_t hash, const struct buckets *b, const struct bucket_cut *k,
                        const struct compiled *c)
{
    hash = mix(hash, &k->bytes, sizeof(k->bytes));
    for (int i = k->first; i < k->first + k->n; i++) {
        const struct bucket_range *r = &b->ranges[i];
        const char *name = c->graph->values[r->state].name;
        size_t at = r->offset - k->offset;

        hash = mix(hash, name, strlen(name) + 1);
        hash = mix(hash, &at, sizeof(at));
        hash = mix(hash, &r->bytes, sizeof(r->bytes));
    }
    return hash;
}

/* One for each group. */
static struct print *make_prints(const struct buckets *b, const struct compiled *c)
{
    struct print *prints = mem_new((size_t)b->n_groups, sizeof(*prints));

    for (int g = 0; g < b->n_groups; g++) {
        uint64_t hash = 0xcbf29ce484222325u;

        prints[g].members = mix(hash, b->groups + (size_t)g * (size_t)b->n_stages,
                                (size_t)b->n_stages * sizeof(*b->groups));
        hash = mix(hash, &c->graph->real, sizeof(c->graph->real));
        for (int i = 0; i < b->n_cuts; i++)
            if (b->cuts[i].group == g)
                hash = mix_cut(hash, b, &b->cuts[i], c);
        prints[g].content = hash;
    }
    return prints;
}

/* The same group as another rank has it: as many as that one has of these members, in order. */
static bool has_print(const void *theirs, size_t size, const struct print *mine, int nth)
{
    struct print p;

    for (size_t at = 0; at + sizeof(p) <= size; at += sizeof(p)) {
        memcpy(&p, (const char *)theirs + at, sizeof(p));
        if (p.members == mine->members && nth-- == 0)
            return p.content == mine->content;
    }
    return false;
}

static int compare(const struct compiled *c, const struct buckets *b,
                   const struct print *prints, const struct placement *placement,
                   const struct comm *comm,
                   const void **parts, const size_t *sizes, struct err *err)
{
    int *ranks = mem_new((size_t)placement->n_ranks, sizeof(*ranks)), bad = 0;

    for (int g = 0; g < b->n_groups && !bad; g++) {
        int n = buckets_ranks(b, g, placement, ranks), nth = 0;
        const bool *in = b->groups + (size_t)g * (size_t)b->n_stages;

        for (int earlier = 0; earlier < g; earlier++)
            nth += prints[earlier].members == prints[g].members;
        for (int i = 0; in[c->stage] && i < n && !bad; i++)
            if (!has_print(parts[ranks[i]], sizes[ranks[i]], &prints[g], nth))
                bad = err_set(err, "stage %d sums other gradients than rank %d (%s) does: its "
                              "graph depends on the batch size, or the ranks do not run the "
                              "same program", c->stage, ranks[i],
                              comm_host(comm, ranks[i]));
    }
    free(ranks);
    return bad;
}

/* Of the groups that the stage is in. */
static void append_prints(const struct buckets *b, const struct print *prints, int stage,
                          struct print **mine, int *n)
{
    for (int g = 0; g < b->n_groups; g++)
        if (b->groups[(size_t)g * (size_t)b->n_stages + (size_t)stage])
            *(struct print *)mem_push((void **)mine, n, sizeof(**mine)) = prints[g];
}

int buckets_check(struct comm *comm, int n, struct compiled *const *compiled,
                  const struct placement *placement, struct err *err)
{
    size_t size = (size_t)comm_size(comm), *sizes = mem_new(size, sizeof(*sizes));
    const void **parts = mem_new(size, sizeof(*parts));
    struct buckets *b = mem_new((size_t)n, sizeof(*b));
    struct print **prints = mem_new((size_t)n, sizeof(*prints)), *mine = NULL;
    void *block = NULL;
    int bad, n_mine = 0, differ = 0;

    for (int c = 0; c < n; c++) {
        buckets_make(&b[c], compiled[c], placement->n_stages, 0);
        prints[c] = make_prints(&b[c], compiled[c]);
        append_prints(&b[c], prints[c], compiled[c]->stage, &mine, &n_mine);
    }
    bad = comm_exchange(comm, mine ? (const void *)mine : "", (size_t)n_mine * sizeof(*mine),
                        &block, parts, sizes, err);
    for (int c = 0; c < n && !bad && !differ; c++)
        differ = compare(compiled[c], &b[c], prints[c], placement, comm, parts, sizes, err) < 0;
    if (!bad)
        bad = comm_agree(comm, err, differ);
    for (int c = 0; c < n; c++) {
        free(prints[c]);
        buckets_clear(&b[c]);
    }
    free(block);
    free(parts);
    free(sizes);
    free(prints);
    free(mine);
    free(b);
    return bad;
}
