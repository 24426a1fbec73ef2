/* SPDX-License-Identifier: MIT */
/* Dynamic programming from the last stage to the first. A state is (first cut, devices used by
 * the stages from there on); each holds the partial plans of which none is better than another
 * in every respect that can still matter.
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_dp.h"

/* Partial plans kept in a state: more only where memory makes many incomparable. */
#define MAX_KEPT 12
/* The same where all stages have as many replicas, and there is much to look at. */
#define MAX_KEPT_EVEN 3
/* Intervals that a search may look at with replica counts that differ, beyond which it makes do
 * with what it has; of what is left of these, one run has a part.
 */
#define MAX_LOOKED 3000000
#define MAX_LOOKED_SOME 20000000
#define RUN_PART 4

static struct node_list *list_at(const struct run *run, int first, int devices)
{
    return &run->lists[(size_t)first * ((size_t)run->devices + 1) + (size_t)devices];
}

/* The first number of devices from 'from' on for which the cut has a list; devices + 1: none. */
static int next_used(const struct run *run, int cut, int from)
{
    const uint64_t *used = run->used + (size_t)cut * run->words;
    size_t word = (size_t)from / 64;
    uint64_t bits = word < run->words ? used[word] >> (from % 64) << (from % 64) : 0;

    while (!bits && ++word < run->words)
        bits = used[word];
    return bits ? (int)(word * 64) + __builtin_ctzll(bits) : run->devices + 1;
}

bool shares_allowed(const struct plan_request *request, int64_t b, int r)
{
    int64_t group = request->batchnorm_samples;

    if (r > b)
        return false;
    for (int i = 0; i < r && group; i++)
        if (plan_share_start(b, r, i + 1) % group)
            return false;
    return true;
}

/* More replicas of the same largest share are of use only under ZeRO-1: they step less each. Of
 * these the most are tried, and where there is little to try all.
 */
static bool is_option(const struct run *run, int r, int64_t most, int64_t last)
{
    const struct plan_request *request = run->search->request;
    int64_t share = candidate_share(run->b, r);
    bool listed = false;

    for (int i = 0; i < request->n_replicas; i++)
        listed |= request->replicas[i] == r;
    if (!shares_allowed(request, run->b, r))
        return false;
    if (request->n_replicas || share != last)
        return !request->n_replicas || listed;
    return run->search->zero &&
           (run->search->some || r == most || candidate_share(run->b, r + 1) != share);
}

static void fill_options(struct run *run)
{
    int64_t most = run->b < run->devices ? run->b : run->devices, last = 0;

    run->options = mem_new((size_t)most, sizeof(*run->options));
    for (int r = 1; r <= most; r++)
        if (is_option(run, r, most, last)) {
            struct option *option = &run->options[run->n_options++];

            last = candidate_share(run->b, r);
            option->replicas = r;
            for (int k = 0; k < run->search->n_kinds; k++)
                option->kinds[k] = table_sums(table_kind(run->search->table, k), last);
            option->share = option->kinds[0];
        }
}

/* May there be a plan that is worth a simulation? */
static bool is_promising(const struct run *run)
{
    double path = dp_least_at(run, run->devices, run->n)->path;

    return closed_iteration(run->search, run->m, run->level,
                            closed_sums(run->search, run->m, 1) ? path : 0, 0) <=
           run->search->best * run->slack;
}

/* Do stages from this block on wait for the backward of those before it, in partition_dp()? */
static bool waits_at(const struct search *search, int block)
{
    const struct cost *cost = search->cost;

    for (int i = 0; i < cost->n_shared && search->versions > 1; i++)
        if (cost->shared[i].blocks[0] < block &&
            cost->shared[i].blocks[cost->shared[i].n_blocks - 1] >= block)
            return true;
    return false;
}

static void fill_waits(struct run *run)
{
    run->waits = mem_new((size_t)run->n + 1, sizeof(*run->waits));
    for (int i = 0; i <= run->n; i++)
        run->waits[i] = waits_at(run->search, run->search->table->cuts[i]);
}

/* Devices that the stages in front of a node may have. */
static inline int devices_before(const struct run *run, const struct node *node)
{
    int pinned = run->search->request->stages;

    return dp_devices_for(run, pinned ? pinned - node->stages : node->first,
                       run->devices - node->devices);
}

/* What they take at least; NULL: there are none, or no device for them. */
static inline const struct least *least_before(const struct run *run, const struct node *node,
                                               int *left)
{
    *left = devices_before(run, node);
    return node->first > 0 && *left > 0 ? dp_least_at(run, *left, node->first) : NULL;
}

/* What cannot matter of the bottleneck is levelled. */
static inline double level_of(const struct run *run, const struct node *node, int left,
                              const struct least *before)
{
    double level = dmax(dmax(node->bottleneck, node->own), run->level);

    return before ? dmax(level, dmax(before->longest,
                                     before->work / dp_worth(run, left,
                                                          run->devices - node->devices)))
                  : level;
}

/* Does 'a' never do worse than 'b', whatever is put before them? A maximum grows by no more
 * than what it is taken of, so a worse bottleneck or tail is made up for by a smaller sum.
 */
static bool dominates(const struct run *run, const struct node *a, const struct node *b)
{
    const struct table *t = run->search->table;
    double slower = a->level > b->level ? a->level - b->level : 0;
    double later = a->tail > b->tail ? a->tail - b->tail : 0;
    double front = dmax(a->own, a->message) - b->own;

    if (run->search->feasible)
        return run->search->request->stages ? a->stages == b->stages : a->stages <= b->stages;
    if (a->share->samples > b->share->samples)
        return false;
    if (a->own - b->own > slower)
        slower = a->own - b->own;
    /* 'a' receives no more than 'b': its first stage is later by as much as its own work. */
    front = dmin(front, a->own > b->own ? a->own - b->own : 0);
    if (!closed_sums(run->search, run->m, a->stages))
        front = 0;
    later += a->back - b->back;
    if (closed_iteration(run->search, run->m, slower, front + a->sum - b->sum, later) > 0)
        return false;
    if (run->search->request->stages ? a->stages != b->stages
                                     : run->kind != SCHEDULE_GPIPE && a->stages > b->stages)
        return false;
    return staircase_at(&t->n_received, a->first, a->end) <=
           staircase_at(&t->n_received, a->first, b->end);
}

static double closed_form(const struct run *run, const struct node *node)
{
    double own = closed_sums(run->search, run->m, node->stages) ? node->own : 0;

    return closed_iteration(run->search, run->m, dmax(node->bottleneck, node->own),
                            node->sum + own, node->tail + node->back);
}

/* No completion of the node takes less. */
static inline double least_with(const struct run *run, const struct node *node,
                                const struct least *before)
{
    double more = 0;

    if (node->first == 0)
        return closed_form(run, node);
    if (!before)
        return INFINITY;
    if (closed_sums(run->search, run->m, node->stages))
        more = node->own + before->path;
    return closed_iteration(run->search, run->m, node->level, node->sum + more,
                            node->tail + node->back);
}

static double least(const struct run *run, const struct node *node)
{
    int left;

    return least_with(run, node, least_before(run, node, &left));
}

/* A full list loses the node that promises least. */
static bool make_room(const struct run *run, struct node_list *list, const struct node *node)
{
    int worst = 0;

    for (int i = 1; i < list->n; i++)
        if (least(run, list->items[i]) > least(run, list->items[worst]))
            worst = i;
    if (least(run, node) >= least(run, list->items[worst]))
        return false;
    list->items[worst] = list->items[--list->n];
    return true;
}

/* What it waits for is asked of those alone that none is better than. */
static void insert(struct run *run, int device, struct node *node)
{
    struct node_list *list = list_at(run, node->first, node->devices);
    struct node *copy;
    int kept = 0;

    run->used[(size_t)node->first * run->words + (size_t)node->devices / 64] |=
        (uint64_t)1 << node->devices % 64;
    for (int i = 0; i < list->n; i++)
        if (dominates(run, list->items[i], node))
            return;
    dp_set_message(run, device, node);
    for (int i = 0; i < list->n; i++)
        if (!dominates(run, node, list->items[i]))
            list->items[kept++] = list->items[i];
    copy = arena_alloc(run->arena, 1, sizeof(*copy));
    *copy = *node;
    if (kept == run->most_kept) {
        /* What is lost might have led to one. */
        run->found = true;
        if (!make_room(run, list, node))
            return;
    }
    kept = kept < list->n ? kept : list->n;
    if (kept == list->n) {
        *(struct node **)mem_push((void **)&list->items, &list->n, sizeof(copy)) = copy;
        return;
    }
    list->items[kept++] = copy;
    list->n = kept;
}

/* Of a stage with so many behind it, the fewest that there can be: how many are in front is
 * known where it is pinned.
 */
static int slots_before(const struct run *run, int behind)
{
    const struct plan_request *q = run->search->request;
    int stages = q->stages > behind ? q->stages : behind + 1;

    if (q->list)
        return q->list->stages[stages - 1 - behind].slots;
    return schedule_slots(run->kind, q->schedule_memory > 0 ? q->schedule_memory : 1, stages,
                          run->m, stages - 1 - behind);
}

/* What the stages have in common that end at one cut with one replica count, before the same others. */
struct frame {
    const struct option *option;
    int device, slots;
    double room;            /* bytes of each device */
    bool asked;
    const struct reduce_time *reduce;   /* once it was */
};

static bool fits(const struct run *run, const struct interval_cost *c, const struct frame *frame,
                 int r, enum schedule_kind kind, enum plan_recompute again)
{
    double bytes = search_memory(run->search, c, run->m, frame->slots, run->pipelines * r,
                                 kind_backward(kind, c->gradient), again);

    if (bytes <= frame->room)
        return true;
    run->search->tight = true;
    return false;
}

/* What a stage [i, end) computes, but for what it recomputes. */
static inline double own_seconds(const struct run *run, const struct share_table *s, int i, int end)
{
    return run->search->slow * ((s->forward[end] - s->forward[i]) +
                                (s->dgrad[end] - s->dgrad[i]) + (s->wgrad[end] - s->wgrad[i]));
}

/* The kind of the stage's devices that takes longest. Each is taken to have a largest share. */
static int slowest_kind(const struct run *run, const struct frame *frame, int i, int end)
{
    double most = -1;
    int slowest = 0;

    for (int k = 0; k < run->search->n_kinds && run->of_kind; k++) {
        double own;

        if (!dp_has_kind(run, k, frame->device, frame->option->replicas))
            continue;
        own = own_seconds(run, frame->option->kinds[k], i, end);
        if (own > most) {
            most = own;
            slowest = k;
        }
    }
    return slowest;
}

/* In place of those of the cost's own kind. */
static void set_seconds(const struct run *run, const struct frame *frame, const struct node *node,
                        struct interval_cost *c)
{
    int kind = slowest_kind(run, frame, node->first, node->end);
    const struct share_table *share = frame->option->kinds[kind];
    const struct table *table = table_kind(run->search->table, kind);

    c->forward = share->forward[node->end] - share->forward[node->first];
    c->again = share->again[node->end] - share->again[node->first];
    c->step = table->step[node->end] - table->step[node->first];
}

static double reduce_seconds(const struct run *run, struct frame *frame, int r, double bytes)
{
    if (bytes <= 0)
        return 0;
    if (!frame->asked)
        frame->reduce = search_reduce_time(run->search, run->pipelines, frame->device, r);
    frame->asked = true;
    return search_reduce_seconds(run->search, frame->reduce, bytes);
}

static void add_tail(const struct run *run, const struct interval_cost *c, struct frame *frame,
                     struct node *node)
{
    double reduce = reduce_seconds(run, frame, node->replicas,
                                   stage_gradient_bytes(run->search->cost, c->parameters));
    int copies = run->search->zero ? run->pipelines * node->replicas : 1;

    node->tail = dmax(node->tail, run->search->slow * c->step / copies + reduce);
}

/* Where the stage fits in no other way, it recomputes: no more than it has to. */
static bool admit(const struct run *run, const struct interval_cost *c, const struct frame *frame,
                  struct node *node)
{
    const struct plan_request *request = run->search->request;
    enum schedule_kind kind = kind_at(run->kind, node->first == 0);
    enum plan_recompute asked = recompute_asked(request), again = asked + 1;
    enum plan_recompute most = recompute_most(request, kind);

    if (fits(run, c, frame, node->replicas, kind, asked))
        return true;
    if (most == asked || !fits(run, c, frame, node->replicas, kind, most))
        return false;
    while (again < most && !fits(run, c, frame, node->replicas, kind, again))
        again++;
    node->own += run->search->slow * interval_again(c, again);
    return true;
}

/* May a stage with so many behind it begin at cut 'first'? Those that are pinned in front of it
 * want a cut and a device each.
 */
static bool allowed(const struct run *run, int stages_behind, int used, int r, int first)
{
    const struct plan_request *request = run->search->request;
    int before = request->stages - 1 - stages_behind;

    if (!request->stages)
        return true;
    if (before < 0 || (first == 0) != (before == 0) || before > first ||
        before > (run->devices - used - r) / run->least_replicas)
        return false;
    return !request->n_replicas || request->replicas[before] == r;
}

/* Is a plan with this node behind not worth a simulation? */
static bool is_slow(const struct run *run, const struct node *node)
{
    return least(run, node) > run->search->best * run->slack;
}

/* The same, once its level is set. */
static bool is_slow_by_level(const struct run *run, struct node *node)
{
    int left;
    const struct least *before = least_before(run, node, &left);

    node->level = level_of(run, node, left, before);
    return least_with(run, node, before) > run->search->best * run->slack;
}

/* Keep a stage [node->first, node->end) before what is behind it; false where a longer one does
 * not fit, either.
 */
static bool add_stage(struct run *run, struct node *node, struct frame *frame)
{
    enum plan_recompute asked = recompute_asked(run->search->request);
    enum schedule_kind longest = kind_at(run->kind, true);  /* may be the first one */
    struct interval_cost c;

    table_interval(run->search->table, dp_intervals(run, node->share), node->first, node->end,
                   &c);
    if (run->of_kind)
        set_seconds(run, frame, node, &c);
    node->own += run->search->slow * interval_again(&c, asked);
    add_tail(run, &c, frame, node);
    if (is_slow(run, node))
        return true;
    if (!admit(run, &c, frame, node)) {
        /* What it receives may shrink further up, the rest only grows. */
        c.slot = c.activations;
        c.received = c.gradient = c.copies = c.copied = 0;
        c.border = c.border_peak = c.fed = 0;
        return fits(run, &c, frame, node->replicas, longest,
                    recompute_most(run->search->request, longest));
    }
    if (is_slow_by_level(run, node))
        return true;
    insert(run, frame->device, node);
    run->found |= node->first == 0;
    if (node->first == 0 && !run->search->feasible)
        run->search->best = dmin(run->search->best, closed_form(run, node));
    return true;
}

/* Is a stage that takes so long, and what is behind it, slower than what was found, by itself? A
 * longer one is slower still.
 */
static inline bool is_too_long(const struct run *run, const struct node *base, double own,
                               bool summed)
{
    return closed_iteration(run->search, run->m, dmax(base->bottleneck, own),
                            base->sum + (summed ? own : 0), 0) >
           run->search->best * run->slack;
}

/* Where, from 'i' on down, a stage may begin: what is in front of those that are passed over, and
 * what is behind them, takes too long whatever they take themselves.
 */
static int skip_slow(const struct run *run, const struct node *base, int i)
{
    const struct search *s = run->search;
    int place = run->devices - base->devices, pinned = s->request->stages;
    bool summed = closed_sums(s, run->m, base->stages);
    double level = dmax(base->bottleneck, run->level), worst = s->best * run->slack;

    for (; i > 0; i--) {
        int left = dp_devices_for(run, pinned ? pinned - base->stages : i, place);
        const struct least *before = left > 0 ? dp_least_at(run, left, i) : NULL;

        if (before && closed_iteration(s, run->m,
                                       dmax(level, before->work / dp_worth(run, left, place)),
                                       base->sum + (summed ? before->path : 0),
                                       base->tail + base->back) <= worst)
            break;
    }
    return i;
}

/* The devices that take longest have it. */
static const struct share_table *pace_of(const struct run *run, const struct frame *frame, int i,
                                         int end)
{
    return run->of_kind ? frame->option->kinds[slowest_kind(run, frame, i, end)]
                        : frame->option->share;
}

static bool is_long_from(const struct run *run, const struct node *base, const struct frame *frame,
                         int i)
{
    return is_too_long(run, base, own_seconds(run, pace_of(run, frame, i, base->end), i, base->end),
                       closed_sums(run->search, run->m, base->stages));
}

/* The same; -1 where a stage is too long before: the longer it is, the longer it takes. What is
 * passed over counts as looked at.
 */
static int pass_over(struct run *run, const struct node *base, const struct frame *frame, int i)
{
    int to = skip_slow(run, base, i), low = to + 1, high = i;

    if (to < i && is_long_from(run, base, frame, low)) {
        while (low < high) {
            int middle = high - (high - low) / 2;

            if (is_long_from(run, base, frame, middle))
                low = middle;
            else
                high = middle - 1;
        }
        run->looked += i - low + 1;
        return -1;
    }
    run->looked += i - to;
    return to;
}

/* All stages [i, end) with one replica count before 'behind' (NULL: the last stage). */
static void extend(struct run *run, const struct node *behind, int end,
                   const struct option *option)
{
    const struct plan_request *request = run->search->request;
    int used = behind ? behind->devices : 0, stages = behind ? behind->stages : 0;
    bool summed = closed_sums(run->search, run->m, stages + 1), sent = false;
    bool skips = !request->block_stage;
    struct frame frame = { .option = option, .device = run->devices - used - option->replicas };
    double back = 0;
    struct node base = { .end = end, .replicas = option->replicas, .stages = stages + 1,
                         .devices = used + option->replicas, .share = option->share,
                         .next = (struct node *)behind };

    if (frame.device < 0)
        return;
    frame.slots = slots_before(run, stages);
    frame.room = search_room(run->search, run->pipelines, frame.device, option->replicas);
    if (behind) {
        base.bottleneck = behind->bottleneck;
        base.sum = behind->sum;
        base.tail = behind->tail;
        base.back = back = behind->back;
    }
    for (int i = end - 1; i >= 0; i--) {
        const struct share_table *share;
        double own;
        struct node node;

        if (skips && (i = pass_over(run, &base, &frame, i)) < 0)
            break;
        skips = false;
        share = pace_of(run, &frame, i, end);
        own = own_seconds(run, share, i, end);
        run->looked++;
        /* Pins are for a number of stages that is known. */
        if (request->block_stage && !pins_allow(request->block_stage, run->search->table, i,
                                                request->stages - 1 - stages))
            break;
        if (is_too_long(run, &base, own, summed))
            break;
        if (!allowed(run, stages, used, option->replicas, i))
            continue;
        base.first = i;
        base.own = own;
        if (run->waits[end])
            base.back = back + run->search->slow * (share->dgrad[end] - share->dgrad[i]);
        if (is_slow_by_level(run, &base))
            continue;
        node = base;
        /* Most are slow without a message, too. */
        if (behind && !sent) {
            dp_add_message(run, behind, option, frame.device, &base);
            sent = true;
            skips = !request->block_stage;
            i++;
        } else if (!add_stage(run, &node, &frame)) {
            break;
        }
    }
}

/* False where it ended early. */
static bool fill_lists(struct run *run)
{
    for (int o = 0; o < run->n_options; o++)
        extend(run, NULL, run->n, &run->options[o]);
    for (int cut = run->n - 1; cut > 0; cut--)
        for (int used = next_used(run, cut, 1); used < run->devices;
             used = next_used(run, cut, used + 1)) {
            const struct node_list *list = list_at(run, cut, used);

            if (run->looked > run->most)
                return false;
            for (int k = 0; k < list->n; k++)
                for (int o = 0; o < run->n_options; o++)
                    if (!is_slow(run, list->items[k]))
                        extend(run, list->items[k], cut, &run->options[o]);
        }
    return true;
}

static struct dp_scratch *scratch_of(struct search *search)
{
    size_t devices = (size_t)search->cluster->n_devices, cuts = (size_t)search->table->n + 1;

    if (search->scratch)
        return search->scratch;
    search->scratch = mem_new(1, sizeof(*search->scratch));
    search->scratch->lists = mem_new(cuts * (devices + 1), sizeof(struct node_list));
    search->scratch->beside = mem_new(2 * devices, sizeof(struct message_link));
    return search->scratch;
}

void partition_dp_forget(struct search *search)
{
    if (search->scratch) {
        free(search->scratch->lists);
        free(search->scratch->beside);
    }
    free(search->scratch);
    search->scratch = NULL;
}

static void new_lists(struct run *run)
{
    run->words = (size_t)run->devices / 64 + 1;
    run->used = mem_new(((size_t)run->n + 1) * run->words, sizeof(*run->used));
    run->scratch = scratch_of(run->search);
    run->lists = run->scratch->lists;
}

static void clear_lists(struct run *run)
{
    for (int cut = 0; cut < run->n; cut++)
        for (int used = next_used(run, cut, 1); used <= run->devices;
             used = next_used(run, cut, used + 1)) {
            free(list_at(run, cut, used)->items);
            memset(list_at(run, cut, used), 0, sizeof(*run->lists));
        }
    memset(run->used, 0, ((size_t)run->n + 1) * run->words * sizeof(*run->used));
}

static void free_lists(struct run *run)
{
    clear_lists(run);
    free(run->used);
}

/* Those that it was cut for: where not all have the same memory, or are of one kind, others will not
 * do.
 */
static void set_devices(const struct run *run, const struct node *node, struct candidate *c)
{
    int first = run->devices - node->devices;

    c->devices = mem_new((size_t)(run->pipelines * node->devices), sizeof(*c->devices));
    for (int p = 0; p < run->pipelines; p++)
        for (int i = 0; i < node->devices; i++) {
            int at = p * run->devices + first + i;

            c->devices[p * node->devices + i] = run->search->order ? run->search->order[at] : at;
        }
}

static struct candidate *to_candidate(const struct run *run, const struct node *node)
{
    const struct table *table = run->search->table;
    struct candidate *c = mem_new(1, sizeof(*c));

    c->pipelines = run->pipelines;
    c->n_stages = node->stages;
    c->cuts = mem_new((size_t)node->stages + 1, sizeof(int));
    c->replicas = mem_new((size_t)node->stages, sizeof(int));
    c->micro_batch = run->b;
    c->micro_batches = run->m;
    c->schedule = run->kind;
    c->zero = run->search->zero;
    c->closed = closed_form(run, node);
    if (!run->search->uniform || run->search->mixed)
        set_devices(run, node, c);
    for (int s = 0; node; node = node->next, s++) {
        c->cuts[s] = table->cuts[node->first];
        c->cuts[s + 1] = table->cuts[node->end];
        c->replicas[s] = node->replicas;
    }
    return c;
}

static void collect(struct run *run)
{
    struct candidate **some = NULL;
    int n = 0;

    for (int used = next_used(run, 0, 1); used <= run->devices;
         used = next_used(run, 0, used + 1)) {
        const struct node_list *list = list_at(run, 0, used);

        for (int k = 0; k < list->n; k++)
            if (closed_form(run, list->items[k]) <= run->search->best * run->slack)
                *(struct candidate **)mem_push((void **)&some, &n, sizeof(*some)) =
                    to_candidate(run, list->items[k]);
    }
    if (n)
        search_keep(run->search, some, n);
    free(some);
}

/* The same where all stages have the replicas of one option. */
static bool is_even_promising(const struct run *run, const struct option *option)
{
    double all = own_seconds(run, option->share, 0, run->n), each;
    int pinned = run->search->request->stages, stages = run->devices / option->replicas;

    for (int k = 1; k < run->search->n_kinds; k++)
        all = dmin(all, own_seconds(run, option->kinds[k], 0, run->n));
    if (stages < pinned)
        return false;
    stages = pinned ? pinned : stages < run->n ? stages : run->n;
    each = all / stages;
    if (run->speeds)
        each = dmax(each, all * option->replicas / run->speeds[run->devices]);
    return closed_iteration(run->search, run->m, each,
                            closed_sums(run->search, run->m, 1) ? all : 0, 0) <=
           run->search->best * run->slack;
}

/* Pipelines with one replica count for all stages are quickly found, and what is slower need
 * not be looked at any more.
 */
static void find_even_pipelines(struct run *run, bool keep)
{
    for (int o = 0; o < run->n_options; o++) {
        struct run even = *run;

        if (!is_even_promising(run, &run->options[o]))
            continue;
        even.options = &run->options[o];
        even.n_options = 1;
        even.most_kept = run->search->some ? MAX_KEPT : MAX_KEPT_EVEN;
        dp_fill_bounds(&even);
        fill_lists(&even);
        run->found |= even.found;
        if (keep)
            collect(&even);
        clear_lists(&even);
        free(even.row);
        free(even.least);
    }
}

static void find_pipelines(struct run *run)
{
    struct search *search = run->search;
    bool whole;

    run->most = ((search->some ? MAX_LOOKED_SOME : MAX_LOOKED) - search->looked) / RUN_PART;
    whole = fill_lists(run);
    search->looked += run->looked < run->most ? run->looked : run->most;
    collect(run);
    if (whole)
        return;
    clear_lists(run);
    run->most = LONG_MAX;
    find_even_pipelines(run, true);
    run->found = true;
}

bool partition_dp(struct search *search, const struct split *split, enum schedule_kind kind,
                  bool even)
{
    struct run run = { .search = search, .pipelines = split->pipelines,
                       .b = split->micro_batch, .m = split->micro_batches, .kind = kind,
                       .n = search->table->n,
                       .devices = search_devices(search, split->pipelines),
                       .slack = even ? 1 : search->slack, .most_kept = MAX_KEPT,
                       .most = LONG_MAX };

    run.whole = table_sums(search->table, run.b);
    dp_fill_kinds(&run);
    fill_options(&run);
    dp_fill_speeds(&run);
    dp_fill_bounds(&run);
    fill_waits(&run);
    if (is_promising(&run)) {
        run.arena = arena_new();
        new_lists(&run);
        if (even)
            find_even_pipelines(&run, false);
        else
            find_pipelines(&run);
        free_lists(&run);
    }
    free(run.options);
    free(run.row);
    free(run.least);
    free(run.waits);
    free(run.of_kind);
    free(run.speeds);
    arena_free(run.arena);
    return run.found;
}
