/* SPDX-License-Identifier: MIT */
/* How many bytes a stage will want, and may have. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"

double search_limit(const struct search *search, int device)
{
    double limit = search->request->memory;
    double own = search->cluster->devices[device].memory;

    if (search->memory > 0)
        return search->memory;
    return limit > 0 && limit < own ? limit : own;
}

void search_rooms(const struct search *search, double *smallest, double *largest)
{
    *smallest = *largest = search_limit(search, 0);
    for (int d = 1; d < search->cluster->n_devices; d++) {
        *smallest = dmin(*smallest, search_limit(search, d));
        *largest = dmax(*largest, search_limit(search, d));
    }
}

double search_room(const struct search *search, int pipelines, int device, int r)
{
    double room = search->uniform ? search_limit(search, 0) : INFINITY;
    int n = search_devices(search, pipelines);

    for (int p = 0; p < pipelines && !search->uniform; p++)
        for (int d = p * n + device; d < p * n + device + r; d++)
            room = dmin(room, search_limit(search, search->order ? search->order[d] : d));
    return room;
}

/* What a run has is foreseen where its stages are compiled. */
double search_message_buffers(const struct search *search)
{
    return search->request->memory_of ? SCHEDULE_SENDS : search->cost->message_buffers;
}

struct stage_bytes interval_bytes(const struct search *search, const struct interval_cost *c,
                                  int64_t micro_batches, int slots, int copies,
                                  enum backward_form form, enum plan_recompute again)
{
    double state = search->state_bytes / (search->zero ? copies : 1);
    double buffers = search_message_buffers(search);
    int versions = search->versions;
    struct stage_cost moving = { .activations = c->activations, .dropped = c->dropped,
                                 .received = c->slot - c->activations, .delayed = c->delayed,
                                 .turn = c->turn, .held = c->held, .rest = c->rest,
                                 .workspace = c->workspace, .peak = c->peak,
                                 .made_again = c->made_again, .peak_again = c->peak_again,
                                 .behind = c->behind, .copies = c->copies,
                                 .border = c->border, .border_peak = c->border_peak,
                                 .copied = c->copied, .fed = c->fed, .left = c->left,
                                 .ahead = c->ahead, .kernels = c->kernels,
                                 .values = c->received,
                                 .gradients = c->gradient, .sent = c->sent };
    struct stage_bytes bytes;

    stage_backward(&moving, form, again, slots);
    bytes.fixed = stage_fixed(search->cost, c->parameters, c->prepared, versions, state);
    bytes.moving = stage_memory(search->cost, &moving, slots, versions, state) +
                   stage_message_bytes(&moving, buffers, micro_batches, slots) +
                   stage_sum_bytes(stage_gradient_bytes(search->cost, c->parameters), buffers,
                                   copies);
    return bytes;
}

static double believed(const struct search *search, struct stage_bytes bytes)
{
    return bytes.fixed * search->factor_fixed + bytes.moving * search->factor_moving;
}

double search_memory(const struct search *search, const struct interval_cost *c,
                     int64_t micro_batches, int slots, int copies, enum backward_form form,
                     enum plan_recompute again)
{
    return believed(search,
                    interval_bytes(search, c, micro_batches, slots, copies, form, again));
}

bool recompute_frees(enum schedule_kind kind)
{
    return kind == SCHEDULE_1F1B || kind == SCHEDULE_GPIPE || kind == SCHEDULE_INTERLEAVED ||
           kind == SCHEDULE_2BW;
}

enum backward_form kind_backward(enum schedule_kind kind, double gradients)
{
    return !recompute_frees(kind) ? BACKWARD_DELAYED
         : gradients > 0 ? BACKWARD_SPLIT : BACKWARD_MERGED;
}

enum backward_form candidate_backward(const struct plan_request *request,
                                      const struct candidate *c, int s, double gradients)
{
    if (request->list)
        return schedule_backward(request->list, s);
    /* Where W follows its B at once, as in the first stage, nothing waits. */
    if (c->chunks <= 1 && schedule_delay(c->schedule, c->budget, c->n_stages, c->micro_batches,
                                         s) == 0)
        return gradients > 0 ? BACKWARD_SPLIT : BACKWARD_MERGED;
    return kind_backward(c->schedule, gradients);
}

static struct stage_bytes stage_bytes(const struct search *search, const struct candidate *c,
                                      int s, const struct interval_cost *cost)
{
    return interval_bytes(search, cost, c->micro_batches,
                          candidate_slots(search->request, c, s),
                          candidate_pipelines(c) * c->replicas[s],
                          candidate_backward(search->request, c, s, cost->gradient),
                          c->again ? c->again[s] : PLAN_RECOMPUTE_NONE);
}

struct stage_bytes search_stage(struct search *search, const struct candidate *c, int s)
{
    struct interval_cost cost;

    candidate_interval(search, c, s, candidate_share(c->micro_batch, c->replicas[s]), &cost);
    return stage_bytes(search, c, s, &cost);
}

enum plan_recompute recompute_asked(const struct plan_request *request)
{
    return request->recompute ? plan_recompute_find(request->recompute) : PLAN_RECOMPUTE_NONE;
}

enum plan_recompute recompute_most(const struct plan_request *request, enum schedule_kind kind)
{
    return !request->recompute && recompute_frees(kind) ? PLAN_RECOMPUTE_FULL
                                                        : recompute_asked(request);
}

double search_interval_bytes(const struct search *search, const struct candidate *c, int s,
                             const struct interval_cost *cost)
{
    return believed(search, stage_bytes(search, c, s, cost));
}

double search_stage_bytes(struct search *search, const struct candidate *c, int s)
{
    return believed(search, search_stage(search, c, s));
}

enum schedule_kind kind_at(enum schedule_kind kind, bool first)
{
    return first && (kind == SCHEDULE_ZB_H1 || kind == SCHEDULE_ZB) ? SCHEDULE_1F1B : kind;
}

static enum plan_recompute stage_most(const struct plan_request *request,
                                      const struct candidate *c, int s)
{
    return candidate_backward(request, c, s, 0) == BACKWARD_DELAYED
               ? recompute_asked(request) : recompute_most(request, SCHEDULE_1F1B);
}

bool search_fits(struct search *search, struct candidate *c)
{
    c->again = mem_resize(c->again, (size_t)c->n_stages, sizeof(*c->again));
    for (int s = 0; s < c->n_stages && !c->given; s++)
        c->again[s] = recompute_asked(search->request);
    if (c->chunks > 1)
        return chunks_fit(search, c, recompute_most(search->request, c->schedule));
    for (int s = 0; s < c->n_stages; s++) {
        int64_t share = candidate_share(c->micro_batch, c->replicas[s]);
        double room = candidate_room(search, c, s);
        struct interval_cost cost;

        candidate_interval(search, c, s, share, &cost);
        while (search_interval_bytes(search, c, s, &cost) > room) {
            if (c->given || c->again[s] == stage_most(search->request, c, s))
                return false;
            c->again[s]++;
        }
    }
    return true;
}

/* Has a stage anything that selective recompute makes again? */
static bool is_selective(const struct search *search, const struct candidate *c, int s)
{
    for (int i = c->cuts[s]; i < c->cuts[s + 1]; i++)
        if (search->cost->blocks[candidate_block(c, i)].selective_dgrad)
            return true;
    return false;
}

/* Each choice of stages from number 's' on. */
static void choose_again(struct search *search, struct candidate *c, int s,
                         const enum plan_recompute *known, again_see *see, void *context)
{
    enum plan_recompute asked = recompute_asked(search->request), most;

    if (s == c->n_stages) {
        if (!known || memcmp(known, c->again, (size_t)s * sizeof(*known)) != 0)
            see(context, c);
        return;
    }
    most = stage_most(search->request, c, s);
    for (enum plan_recompute r = asked; r <= most; r++) {
        c->again[s] = r;
        if (r == PLAN_RECOMPUTE_SELECTIVE && r > asked && !is_selective(search, c, s))
            continue;
        if (c->chunks > 1 || search_stage_bytes(search, c, s) <= candidate_room(search, c, s))
            choose_again(search, c, s + 1, known, see, context);
    }
}

bool chooses_again(const struct search *search, const struct candidate *c)
{
    for (int s = 0; s < c->n_stages; s++)
        if (c->again[s] != recompute_asked(search->request))
            return true;
    return false;
}

void search_each_again(struct search *search, struct candidate *c, again_see *see, void *context)
{
    bool fits = search_fits(search, c);
    struct candidate *other;

    if (!chooses_again(search, c))
        return;
    other = candidate_copy(c);
    other->given = true;
    choose_again(search, other, 0, fits ? c->again : NULL, see, context);
    candidate_free(other);
}

bool schedule_allowed(const struct plan_request *r, enum schedule_kind schedule)
{
    if (r->list)
        return schedule == SCHEDULE_1F1B;
    if (r->schedule)
        return strcmp(r->schedule, schedule_name(schedule)) == 0;
    return schedule_chunks(schedule, 2) == 1 && schedule_versions(schedule) == 1;
}

int request_versions(const struct plan_request *r)
{
    if (r->list)
        return r->list->versions;
    return r->schedule ? schedule_versions((enum schedule_kind)schedule_find(r->schedule)) : 1;
}

bool set_schedule(struct search *search, struct candidate *c, enum schedule_kind schedule)
{
    double pinned = search->request->schedule_memory;

    c->schedule = schedule;
    c->budget = 0;
    c->given = false;
    if (schedule != SCHEDULE_ZB || !schedule_allowed(search->request, schedule))
        return schedule_allowed(search->request, schedule);
    c->budget = pinned;
    for (int more = c->n_stages - 1; more >= 0 && pinned <= 0; more--) {
        c->budget = 1 + (double)more / c->n_stages;
        if (search_fits(search, c) && !chooses_again(search, c))
            break;
    }
    return true;
}
