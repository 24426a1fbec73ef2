/* SPDX-License-Identifier: MIT */
/* Ranks that are threads: groups and their sums.
 *
 * All members show where their data are. Once all are here, each sums its slice of all of them
 * into its own; once all have summed, each copies the slices of the others; once all have
 * copied, the data are their own again.
 */
#include "comm/threads_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "comm/sum.h"

enum phase { PHASE_SUM, PHASE_COPY, PHASE_END };

/* A collective under way. */
struct sum {
    struct sum *next;
    unsigned number;
    int members, left;          /* of them, who have ended it */
    enum comm_operation operation;
    enum dtype dtype;
    size_t count;
    unsigned char **data;       /* [members] */
    atomic_int ended[PHASE_END + 1];    /* members that are through: here, summed, copied */
};

/* What the members of a group share. */
struct team {
    struct team *next;          /* of the hub, under its lock */
    int n, n_closed;
    int *ranks;
    bool *joined;
    pthread_mutex_t lock;       /* of what follows */
    struct sum *sums, *spare;
};

struct membership {
    struct team *team;
    unsigned number;            /* of the next collective */
};

static void free_sums(struct sum *sum)
{
    while (sum) {
        struct sum *next = sum->next;

        free(sum->data);
        free(sum);
        sum = next;
    }
}

static void free_team(struct team *team)
{
    free_sums(team->sums);
    free_sums(team->spare);
    pthread_mutex_destroy(&team->lock);
    free(team->ranks);
    free(team->joined);
    free(team);
}

void teams_free(struct team *teams)
{
    while (teams) {
        struct team *next = teams->next;

        free_team(teams);
        teams = next;
    }
}

static struct team *team_new(const struct comm_group *group)
{
    struct team *team = mem_new(1, sizeof(*team));
    size_t n = (size_t)group->n;

    team->n = group->n;
    team->ranks = mem_new(n, sizeof(*team->ranks));
    team->joined = mem_new(n, sizeof(*team->joined));
    memcpy(team->ranks, group->ranks, n * sizeof(*team->ranks));
    pthread_mutex_init(&team->lock, NULL);
    return team;
}

static bool is_open_to(const struct team *team, const struct comm_group *group)
{
    return team->n == group->n && !team->joined[group->me] &&
           memcmp(team->ranks, group->ranks, (size_t)group->n * sizeof(*group->ranks)) == 0;
}

/* Members open the groups of one list in one order: theirs is the oldest that I am not in. */
int threads_group_open(struct comm_group *group, struct err *err)
{
    struct hub *hub = hub_of(group->comm);
    struct membership *mine = mem_new(1, sizeof(*mine));
    struct team **at = &hub->teams;

    (void)err;
    pthread_mutex_lock(&hub->lock);
    while (*at && !is_open_to(*at, group))
        at = &(*at)->next;
    if (!*at)
        *at = team_new(group);
    (*at)->joined[group->me] = true;
    mine->team = *at;
    pthread_mutex_unlock(&hub->lock);
    group->state = mine;
    return 0;
}

void threads_group_close(struct comm_group *group)
{
    struct hub *hub = hub_of(group->comm);
    struct membership *mine = group->state;
    struct team **at = &hub->teams;

    pthread_mutex_lock(&hub->lock);
    while (*at != mine->team)
        at = &(*at)->next;
    if (++mine->team->n_closed == mine->team->n) {
        *at = mine->team->next;
        free_team(mine->team);
    }
    pthread_mutex_unlock(&hub->lock);
    free(mine);
}

static struct sum *new_sum(struct team *team)
{
    struct sum *sum = team->spare;

    if (sum) {
        team->spare = sum->next;
    } else {
        sum = mem_new(1, sizeof(*sum));
        sum->data = mem_new((size_t)team->n, sizeof(*sum->data));
        sum->members = team->n;
    }
    sum->left = 0;
    for (int i = 0; i <= PHASE_END; i++)
        atomic_store(&sum->ended[i], 0);
    return sum;
}

/* Mine of the group's, as the others that have come already know it. */
static struct sum *find_sum(struct team *team, const struct sum *mine)
{
    struct sum **at = &team->sums;

    while (*at && (*at)->number != mine->number)
        at = &(*at)->next;
    if (!*at) {
        *at = new_sum(team);
        (*at)->next = NULL;
        (*at)->number = mine->number;
        (*at)->operation = mine->operation;
        (*at)->dtype = mine->dtype;
        (*at)->count = mine->count;
    }
    return *at;
}

static bool are_alike(const struct sum *a, const struct sum *b)
{
    return a->operation == b->operation && a->dtype == b->dtype && a->count == b->count;
}

int threads_collective(struct comm_request *base, struct comm_group *group, void *data, size_t n,
                       enum dtype dtype, bool deterministic, struct err *err)
{
    struct threads_request *request = (struct threads_request *)base;
    struct membership *mine = group->state;
    struct sum same = { .number = mine->number, .operation = base->operation, .dtype = dtype,
                        .count = n };
    size_t size = sum_element(dtype, err);
    bool alike;

    (void)deterministic;
    if (!size)
        return -1;
    base->bytes = n * size;
    request->phase = PHASE_SUM;
    pthread_mutex_lock(&mine->team->lock);
    request->sum = find_sum(mine->team, &same);
    alike = are_alike(request->sum, &same);
    request->sum->data[group->me] = data;
    pthread_mutex_unlock(&mine->team->lock);
    if (!alike)
        return err_set(err, "the members call it with different data");
    mine->number++;
    hub_gives(request->sum);
    atomic_fetch_add(&request->sum->ended[0], 1);
    return 0;
}

static size_t start_of(const struct sum *sum, int member)
{
    return comm_slice_start(sum->count, sum->members, member) * sum_element(sum->dtype, NULL);
}

struct slice {
    const struct sum *sum;
    size_t start;
};

static const void *part_of(const void *context, int member)
{
    const struct slice *slice = context;

    return slice->sum->data[member] + slice->start;
}

static void sum_mine(struct sum *sum, int me)
{
    struct slice slice = { sum, start_of(sum, me) };
    size_t n = comm_slice_start(sum->count, sum->members, me + 1) -
               comm_slice_start(sum->count, sum->members, me);

    if (sum->operation != COMM_ALL_GATHER)
        sum_parts(sum->dtype, sum->members, part_of, &slice, n, sum->data[me] + slice.start);
}

/* Small steps around the ring, so that not all read from the same one first. */
static void copy_theirs(struct sum *sum, int me)
{
    for (int i = 1; i < sum->members && sum->operation != COMM_REDUCE_SCATTER; i++) {
        int from = (me + i) % sum->members;
        size_t start = start_of(sum, from);

        memcpy(sum->data[me] + start, sum->data[from] + start, start_of(sum, from + 1) - start);
    }
}

static void leave_sum(struct team *team, struct sum *sum)
{
    struct sum **at = &team->sums;

    pthread_mutex_lock(&team->lock);
    if (++sum->left == sum->members) {
        while (*at != sum)
            at = &(*at)->next;
        *at = sum->next;
        sum->next = team->spare;
        team->spare = sum;
    }
    pthread_mutex_unlock(&team->lock);
}

void threads_collective_next(struct threads_request *request, bool *done)
{
    const struct comm_group *group = request->base.group;
    const struct membership *mine = group->state;
    struct sum *sum = request->sum;

    while (atomic_load(&sum->ended[request->phase]) == sum->members) {
        hub_takes(sum);
        if (request->phase == PHASE_END) {
            leave_sum(mine->team, sum);
            *done = true;
            return;
        }
        if (request->phase == PHASE_SUM)
            sum_mine(sum, group->me);
        else
            copy_theirs(sum, group->me);
        request->phase++;
        hub_gives(sum);
        atomic_fetch_add(&sum->ended[request->phase], 1);
    }
    *done = false;
}
