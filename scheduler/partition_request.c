/* SPDX-License-Identifier: MIT */
/* What a request may ask for, and why it cannot be had. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/memory.h"
#include "scheduler/partition_private.h"

#define MAX_MICRO 65536

/* Of the memory that would do, relative. */
#define PRECISION 1e-4

#define REFUSE(...) err_set_code(err, EXIT_USAGE, __VA_ARGS__)

static int64_t nearest_divisor(int64_t n, int64_t wanted)
{
    for (int64_t i = 0; i < wanted; i++) {
        if (n % (wanted - i) == 0)
            return wanted - i;
        if (n % (wanted + i) == 0)
            return wanted + i;
    }
    return 1;
}

static int check_divides(const char *option, int64_t value, int64_t samples, int pipelines,
                         struct err *err)
{
    if (!value || samples % value == 0)
        return 0;
    return REFUSE("--%s %lld: does not divide the global batch of %lld%s; %lld would do", option,
                  (long long)value, (long long)samples * pipelines,
                  pipelines > 1 ? " over --pipelines" : "",
                  (long long)nearest_divisor(samples, value));
}

static int check_batch(const struct plan_request *r, struct err *err)
{
    int64_t g = r->global_batch;
    int pipelines = r->pipelines ? r->pipelines : 1;

    if (g < 1)
        return REFUSE("the global batch is %lld samples: at least 1 is needed", (long long)g);
    if (check_divides("pipelines", pipelines, g, 1, err))
        return -1;
    g /= pipelines;
    if (check_divides("micro-batches", r->micro_batches, g, pipelines, err) ||
        check_divides("micro-batch-size", r->micro_batch, g, pipelines, err) ||
        check_divides("batchnorm-samples", r->batchnorm_samples, g, pipelines, err))
        return -1;
    if (r->micro_batch && r->micro_batches && r->micro_batches != g / r->micro_batch)
        return REFUSE("--micro-batches %lld of %lld samples are not the global batch of %lld; "
                      "leave one of them out", (long long)r->micro_batches,
                      (long long)r->micro_batch, (long long)g);
    return 0;
}

/* Groups of devices in a pipeline for the stages pinned: one for each of these, or for several where
 * there are too few devices and the schedule is left open.
 */
static int lists_for(const struct cluster *cluster, const struct plan_request *r)
{
    int lists = cluster->n_devices / (r->pipelines ? r->pipelines : 1) /
                (r->n_replicas ? r->replicas[0] : 1);

    if (request_chunks(r) > 1 || !chunks_allowed(r) || r->stages <= lists)
        return r->stages / request_chunks(r);
    for (int i = 1; i < r->n_replicas; i++)
        if (r->replicas[i] != r->replicas[0])
            return r->stages;
    while (lists > 1 && r->stages % lists)
        lists--;
    return lists > 1 && r->stages / lists <= SCHEDULE_MAX_CHUNKS ? lists : r->stages;
}

static int check_counts(const struct cost *cost, const struct cluster *cluster,
                        const struct plan_request *r, struct err *err)
{
    int pipelines = r->pipelines ? r->pipelines : 1, all = 0;
    int stages = lists_for(cluster, r), most = cluster->n_devices / (stages ? stages : 1);

    if (pipelines > most && pipelines > 1)
        return REFUSE("--pipelines %d%s: %s has %d devices; at most %d would do",
                      pipelines, r->stages > 1 ? " of so many stages" : "", cluster->name,
                      cluster->n_devices, most > 1 ? most : 1);
    if (stages > cluster->n_devices)
        return REFUSE("--stages %d: %s has %d device%s%s; --stages %d would do", r->stages,
                      cluster->name, cluster->n_devices, cluster->n_devices == 1 ? "" : "s",
                      chunks_allowed(r) && cluster->n_devices > 1
                          ? ", and no schedule divides so many among them" : "",
                      cluster->n_devices < cost->n_blocks ? cluster->n_devices : cost->n_blocks);
    if (r->stages > cost->n_blocks)
        return REFUSE("--stages %d: the network has %d blocks, and a stage one at least; at most "
                      "--stages %d would do", r->stages, cost->n_blocks, cost->n_blocks);
    if (r->n_replicas && r->stages && r->n_replicas != r->stages)
        return REFUSE("--replicas names %d stages, --stages %d; leave one of them out",
                      r->n_replicas, r->stages);
    for (int i = 0; i < r->n_replicas; i++)
        all += r->replicas[i];
    all = r->stages ? (int)((int64_t)all * stages / r->stages) : all / request_chunks(r);
    if (all * pipelines > cluster->n_devices)
        return REFUSE("--replicas: %d in all, %s has %d devices; %s", all * pipelines,
                      cluster->name, cluster->n_devices,
                      pipelines > 1 ? "fewer --pipelines or replicas would do"
                                    : "fewer replicas would do");
    if (r->schedule && schedule_find(r->schedule) < 0)
        return REFUSE("--schedule %s: expected " SCHEDULE_NAMES, r->schedule);
    if (check_chunks(r, err))
        return -1;
    if (r->schedule_memory > 0 && (!r->schedule || strcmp(r->schedule, "zb") != 0))
        return REFUSE("--schedule-memory is about --schedule zb alone; give that, or leave it out");
    return 0;
}

bool request_is_flat(const struct cluster *cluster)
{
    int first = cluster->devices[0].place;

    for (int d = 1; d < cluster->n_devices; d++) {
        int place = cluster->devices[d].place;

        if (cluster->places[place].parent != cluster->places[first].parent ||
            !cluster_alike(cluster, first, place))
            return false;
    }
    return true;
}

static int check_exhaustive(const struct cost *cost, const struct cluster *cluster,
                            struct err *err)
{
    bool flat = request_is_flat(cluster);
    int blocks = flat ? 12 : EXHAUSTIVE_BLOCKS, devices = flat ? 8 : EXHAUSTIVE_DEVICES;

    if (cost->n_blocks > blocks || cluster->n_devices > devices)
        return REFUSE("--exhaustive: %d blocks on %d devices: at most %d on %d, %s",
                      cost->n_blocks, cluster->n_devices, blocks, devices,
                      flat ? "where all devices are alike"
                           : "or 12 on 8 that are all alike");
    return 0;
}

static bool size_suits(const struct plan_request *r, int64_t b)
{
    if (r->global_batch / b > MAX_MICRO)
        return false;
    if (r->batchnorm_samples && b % r->batchnorm_samples)
        return false;
    for (int i = 0; i < r->n_replicas; i++)
        if (!shares_allowed(r, b, r->replicas[i]))
            return false;
    return true;
}

/* The nearest micro-batch that divides the global batch and suits all replica counts. */
static int64_t nearest_size(const struct plan_request *r)
{
    int64_t best = 0, wanted = r->micro_batch;

    if (!wanted && r->micro_batches)
        wanted = r->global_batch / r->micro_batches;
    for (int64_t m = 1; m <= r->global_batch / m; m++) {
        const int64_t pair[] = { m, r->global_batch / m };

        for (int i = 0; i < 2 && r->global_batch % m == 0; i++)
            if (size_suits(r, pair[i]) &&
                (!best || llabs(pair[i] - wanted) < llabs(best - wanted)))
                best = pair[i];
    }
    return best;
}

static int refuse_size(const struct plan_request *r, struct err *err)
{
    int64_t suggestion = nearest_size(r), count = r->micro_batches;

    if (r->micro_batch)
        count = r->global_batch / r->micro_batch;
    if (count > MAX_MICRO)
        err_set_code(err, EXIT_USAGE, "%lld micro-batches in a pipeline: at most %d are planned "
                     "for", (long long)count, MAX_MICRO);
    else if (r->batchnorm_samples)
        err_set_code(err, EXIT_USAGE, "no micro-batch gives every replica a share that is a "
                     "multiple of %lld samples (--batchnorm-samples)",
                     (long long)r->batchnorm_samples);
    else
        err_set_code(err, EXIT_USAGE, "a replica would have no sample: no micro-batch that is "
                     "allowed has as many samples as a stage has replicas");
    if (suggestion)
        err_hint(err, "--micro-batch-size %lld would do", (long long)suggestion);
    return -1;
}

int check_request(const struct cost *cost, const struct cluster *cluster,
                  const struct plan_request *request, struct err *err)
{
    struct plan_request each = *request;
    int64_t *sizes;
    int n;

    if (check_batch(request, err) || check_counts(cost, cluster, request, err) ||
        (request->exhaustive && check_exhaustive(cost, cluster, err)))
        return -1;
    each.global_batch /= request->pipelines ? request->pipelines : 1;
    sizes = micro_sizes(&each, &n);
    free(sizes);
    return n ? 0 : refuse_size(&each, err);
}

static bool size_allowed(const struct plan_request *r, int64_t micro_batch)
{
    int64_t count = r->global_batch / micro_batch;

    if (r->micro_batch && r->micro_batch != micro_batch)
        return false;
    if (r->micro_batches && r->micro_batches != count)
        return false;
    return size_suits(r, micro_batch);
}

int64_t *micro_sizes(const struct plan_request *r, int *n)
{
    int64_t *sizes = NULL, root = 1;

    *n = 0;
    for (; root <= r->global_batch / root; root++)
        if (r->global_batch % root == 0 && size_allowed(r, r->global_batch / root))
            *(int64_t *)mem_push((void **)&sizes, n, sizeof(root)) = r->global_batch / root;
    for (int64_t m = root - 1; m >= 1; m--)
        if (m < r->global_batch / m && r->global_batch % m == 0 && size_allowed(r, m))
            *(int64_t *)mem_push((void **)&sizes, n, sizeof(m)) = m;
    return sizes;
}

/* Says which memory would do, if any. */
static int hint_memory(const struct search *s, double bytes, struct err *err)
{
    double smallest = INFINITY;

    if (bytes <= 0)
        return -1;
    for (int d = 0; d < s->cluster->n_devices; d++)
        smallest = dmin(smallest, s->cluster->devices[d].memory);
    if (s->request->memory > 0)
        return err_hint(err, "--memory %.0f%s would do", bytes,
                        bytes > smallest ? " on devices of as much" : "");
    return err_hint(err, "devices of %.0f bytes would do", bytes);
}

static int explain_missed(const struct search *s, double smallest, double room, struct err *err)
{
    double enough;

    if (s->uniform)
        err_set_code(err, EXIT_USAGE, "%s%s%snothing was found that fits %.0f bytes per device, "
                     "which by estimate may do", s->request->schedule ? "--schedule " : "",
                     s->request->schedule ? s->request->schedule : "",
                     s->request->schedule ? ": " : "", room);
    else
        err_set(err, "nothing was found that fits the %d devices, of %.0f to %.0f bytes",
                s->cluster->n_devices, smallest, room);
    if (hint_pins(s, err))
        return -1;
    enough = search_suffices(s, smallest, room);
    return enough > 0 ? hint_memory(s, enough, err) : err_hint(err, "pin other --stages");
}

/* The interval of blocks that wants most on its own, where it keeps the least: with the smallest
 * share and so many micro-batches in flight, on so many devices, and its bytes on each, by the
 * estimate.
 */
static int find_giant(const struct search *s, const struct share_table *share, int slots,
                      int copies, enum plan_recompute again, double *bytes)
{
    int giant = 0;

    *bytes = 0;
    for (int i = 0; i < s->table->n; i++) {
        struct interval_cost c;
        struct stage_bytes own;

        table_interval(s->table, share, i, i + 1, &c);
        own = interval_bytes(s, &c, slots, slots, copies, BACKWARD_MERGED, again);
        if (own.fixed + own.moving > *bytes) {
            *bytes = own.fixed + own.moving;
            giant = i;
        }
    }
    return giant;
}

/* The exact bytes of an interval as a stage of its own; 0 where they cannot be had. */
static double exact_alone(const struct search *s, int interval, int64_t size,
                          enum schedule_kind schedule, enum plan_recompute recompute)
{
    const struct table *table = s->table;
    int cuts[4] = { 0 }, replicas[3] = { 1, 1, 1 }, n = 0, own = interval > 0;
    enum plan_recompute again[3] = { recompute, recompute, recompute };
    struct candidate c = { .cuts = cuts, .replicas = replicas, .micro_batch = size, .again = again,
                           .micro_batches = s->request->global_batch / size,
                           .schedule = schedule, .zero = s->zero, .budget = 1 };
    struct memory_use use = { 0 };
    struct plan *plan;

    if (interval > 0)
        cuts[++n] = table->cuts[interval];
    cuts[++n] = table->cuts[interval + 1];
    if (interval + 1 < table->n)
        cuts[++n] = table->cuts[table->n];
    c.n_stages = n;
    if (!s->request->memory_of || s->request->list || n > s->cluster->n_devices)
        return 0;
    plan = place(s->cost, s->cluster, s->request, &c);
    if (s->request->memory_of(s->request->user, plan, own, &use, NULL))
        use.total = 0;
    plan_free(plan);
    return (double)use.total;
}

/* The block with most to keep among [first, end). */
static const char *heaviest(const struct cost *cost, int first, int end)
{
    double most = -1;
    int block = first;

    for (int b = first; b < end; b++) {
        double bytes = cost->blocks[b].parameters + cost->blocks[b].activations[0];

        if (bytes > most) {
            most = bytes;
            block = b;
        }
    }
    return cost->blocks[block].name;
}

/* What keeps least of what the request allows. */
enum schedule_kind least_schedule(const struct plan_request *r)
{
    if (r->list)
        return request_chunks(r) > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
    return r->schedule ? (enum schedule_kind)schedule_find(r->schedule) : SCHEDULE_1F1B;
}

static bool feasible(struct search *s, int64_t size, double memory)
{
    int pipelines = s->splits[0].pipelines;
    struct split split = { pipelines, size, s->request->global_batch / pipelines / size, 0 };

    search_reset(s);
    s->memory = memory;
    s->feasible = true;
    partition_dp(s, &split, least_schedule(s->request), false);
    return s->n_found > 0;
}

/* The least memory per device with which there is a plan at all; 0 where there is none. */
static double least_memory(struct search *s, int64_t size, double from)
{
    double low = from, high = from;

    if (!feasible(s, size, INFINITY))
        return 0;
    while (!feasible(s, size, high))
        high *= 2;
    while (high - low > 1 && high - low > high * PRECISION) {
        double middle = low + (high - low) / 2;

        if (feasible(s, size, middle))
            high = middle;
        else
            low = middle;
    }
    feasible(s, size, high);
    return ceil(high);
}

/* The fullest stage of a candidate. */
static int fullest_stage(struct search *s, const struct candidate *c)
{
    struct plan *plan = place(s->cost, s->cluster, s->request, c);
    int fullest = 0;

    for (int k = 1; k < plan->n_stages; k++)
        if (plan->stages[k].memory > plan->stages[fullest].memory)
            fullest = k;
    plan_free(plan);
    return fullest;
}

static int64_t smallest_share(const struct search *s, int64_t size)
{
    int r = s->cluster->n_devices;

    while (r > 1 && !shares_allowed(s->request, size, r))
        r--;
    return (size + r - 1) / r;
}

/* Several pipelines need no less than one whose stages have as many replicas, where there may be
 * one.
 */
static int64_t smallest_micro_batch(const struct search *s)
{
    int64_t smallest = s->splits[0].micro_batch;

    for (int i = 1; i < s->n_splits && s->splits[i].pipelines == s->splits[0].pipelines; i++)
        smallest = s->splits[i].micro_batch;
    return smallest;
}

static int explain_giant(struct search *s, int giant, double bytes, double room, struct err *err)
{
    double enough = least_memory(s, smallest_micro_batch(s), dmax(room, 1));

    enough = search_suffices(s, room, dmax(enough, bytes));
    if (enough > 0)
        bytes = dmin(bytes, enough);
    err_set(err, "block \"%s\" does not fit on one device, by %.0f bytes",
            heaviest(s->cost, s->table->cuts[giant], s->table->cuts[giant + 1]),
            ceil(bytes - room));
    hint_pins(s, err);
    return hint_memory(s, enough, err);
}

static int explain_network(struct search *s, double needed, double room, struct err *err)
{
    const struct candidate *c = s->found[0];
    int stage = fullest_stage(s, c), first = c->cuts[stage], last = c->cuts[stage + 1] - 1;
    double enough = search_suffices(s, room, needed);

    if (enough > 0)
        needed = enough;
    err_set(err, "the network does not fit on %d devices of %.0f bytes", s->cluster->n_devices,
            room);
    if (c->n_stages == 1)
        err_hint(err, "one stage with all of it lacks %.0f bytes", needed - room);
    else
        err_hint(err, "of %d stages the one with the %d block%s \"%s\" to \"%s\" lacks %.0f bytes",
                 c->n_stages, last - first + 1, first == last ? "" : "s",
                 s->cost->blocks[first].name, s->cost->blocks[last].name, needed - room);
    hint_pins(s, err);
    return hint_memory(s, enough, err);
}

/* Of several stages on each device. */
static int explain_chunks(const struct search *s, struct err *err)
{
    const struct plan_request *r = s->request;

    if (r->list || r->listed)
        err_set_code(err, EXIT_USAGE, "no replicas of %d devices suit the micro-batches, the pins "
                     "and the memory", r->stages / request_chunks(r));
    else if (request_chunks(r) > 1)
        err_set_code(err, EXIT_USAGE, "--schedule %s: no number of devices from 1 to %d suits the "
                     "micro-batches, the pins and the memory", r->schedule, s->cluster->n_devices);
    else
        err_set_code(err, EXIT_USAGE, "--stages %d on %d devices: no schedule that gives a device "
                     "several stages suits the micro-batches, the other pins and the memory",
                     r->stages, s->cluster->n_devices);
    return hint_pins(s, err) ? -1 : err_hint(err, "leave some out, or ask for more devices");
}

int explain_failure(struct search *s, struct err *err)
{
    const struct plan_request *r = s->request;
    int64_t size = smallest_micro_batch(s);
    enum schedule_kind kind = kind_at(least_schedule(r), true);
    enum plan_recompute again = recompute_most(r, kind);
    int slots = schedule_slots(kind, 0, 1, r->global_batch / size, 0), giant;
    int64_t share = smallest_share(s, size);
    double smallest, room, bytes, needed;

    if (request_chunks(r) > 1 || lists_for(s->cluster, r) < r->stages)
        return explain_chunks(s, err);
    search_rooms(s, &smallest, &room);
    giant = find_giant(s, table_share(s->table, share), slots, s->cluster->n_devices, again,
                       &bytes);
    if (share == size)
        bytes = dmax(bytes, exact_alone(s, giant, size, kind, again));
    if (bytes > room)
        return explain_giant(s, giant, bytes, room, err);
    needed = isfinite(room) ? least_memory(s, size, dmax(room, 1)) : 0;
    if (r->stages > s->table->n)
        return REFUSE("--stages %d: the %d blocks of the network are planned as %d pieces, of "
                      "which a stage has one at least; at most --stages %d would do", r->stages,
                      s->cost->n_blocks, s->table->n, s->table->n);
    if (needed <= 0) {
        err_set_code(err, EXIT_USAGE, "these pins leave no plan, whatever the memory");
        return hint_pins(s, err) ? -1 : err_hint(err, "leave out some of them");
    }
    if (needed - room < 1)
        return explain_missed(s, smallest, room, err);
    return explain_network(s, needed, room, err);
}
