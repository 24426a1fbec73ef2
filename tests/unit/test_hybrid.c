/* SPDX-License-Identifier: MIT */
/* Processes of several ranks: what stands for the processes here are threads, too, and what stands
 * for MPI is the driver for threads.
 */
#include "unit.h"

#include <pthread.h>

#include "base/mem.h"
#include "comm/crew.h"
#include "comm/driver.h"
#include "comm/hybrid.h"
#include "comm/threads.h"

#define PROCESSES 3
#define RANKS 6

static const int counts[PROCESSES] = { 1, 3, 2 };

typedef int work_call(const struct launch *launch, void *context, struct err *err);

struct process {
    struct hub *hub;
    struct comm_driver driver;
    int number, max_tag, code;
    work_call *work;
    struct err err;
    pthread_t thread;
};

static struct comm *open_far(struct process *p)
{
    struct launch launch = { .kind = LAUNCH_THREADS, .hub = p->hub, .rank = p->number };
    struct comm *far = comm_open(&launch, &p->err);

    p->driver = comm_threads_driver;
    p->driver.share = p->driver.exchange;
    far->driver = &p->driver;
    if (p->max_tag)
        far->max_tag = p->max_tag;
    return far;
}

static void *be_process(void *data)
{
    struct process *p = data;
    struct launch launch = { .kind = LAUNCH_MPI, .several = true, .processes = open_far(p) };

    p->code = crew_run(counts[p->number], &launch, p->work, &p->number, &p->err);
    if (p->code)
        comm_close(launch.processes);
    return NULL;
}

static void run_as(struct process *processes, work_call *work, int max_tag)
{
    struct hub *hub = hub_new(PROCESSES);

    for (int i = 0; i < PROCESSES; i++) {
        processes[i] = (struct process){ .hub = hub, .number = i, .max_tag = max_tag,
                                         .work = work };
        assert_int_equal(pthread_create(&processes[i].thread, NULL, be_process, &processes[i]), 0);
    }
    for (int i = 0; i < PROCESSES; i++)
        pthread_join(processes[i].thread, NULL);
    hub_free(hub);
}

static void run(work_call *work)
{
    struct process processes[PROCESSES];

    run_as(processes, work, 0);
    for (int i = 0; i < PROCESSES; i++)
        assert_int_equal(processes[i].code, 0);
}

/* Numbers ------------------------------------------------------------------------------- */

static int look_around(const struct launch *launch, void *context, struct err *err)
{
    static const int processes[RANKS] = { 0, 1, 1, 1, 2, 2 };
    struct comm *comm = comm_open(launch, err);

    MUST(comm && comm_size(comm) == RANKS);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_process(comm, r) == processes[r]);
    MUST(comm_process(comm, comm_rank(comm)) == *(const int *)context);
    MUST(comm_far_rank(comm) == 1);
    comm_close(comm);
    return 0;
}

static void ranks_are_numbered_process_by_process(void **state)
{
    (void)state;
    run(look_around);
}

/* Control ------------------------------------------------------------------------------- */

static void exchange(struct comm *comm, int round, struct err *err)
{
    int me = comm_rank(comm);
    const void *parts[RANKS];
    size_t sizes[RANKS];
    char mine[RANKS * 10];
    void *block;

    memset(mine, 'a' + me + round, sizeof(mine));
    MUST(comm_exchange(comm, mine, (size_t)(me * round), &block, parts, sizes, err) == 0);
    for (int r = 0; r < RANKS; r++) {
        const char *part = parts[r];

        MUST(sizes[r] == (size_t)(r * round));
        for (size_t i = 0; i < sizes[r]; i++)
            MUST(part[i] == 'a' + r + round);
    }
    free(block);
}

static void broadcast(struct comm *comm, int root, struct err *err)
{
    char bytes[100];
    void *data = bytes;
    size_t size = comm_rank(comm) == root ? 50 + (size_t)root : 0;

    memset(bytes, 'A' + root, sizeof(bytes));
    MUST(comm_broadcast(comm, root, &data, &size, err) == 0);
    MUST(size == 50 + (size_t)root && ((char *)data)[size - 1] == 'A' + root);
    if (data != bytes)
        free(data);
}

static int meet(const struct launch *launch, void *context, struct err *err)
{
    struct comm *comm = comm_open(launch, err);

    (void)context;
    MUST(comm);
    for (int round = 0; round < 10; round++)
        exchange(comm, round, err);
    for (int root = 0; root < RANKS; root++)
        broadcast(comm, root, err);
    MUST(comm_fence(comm, err) == 0);
    MUST(comm_agree(comm, err, 0) == 0);
    for (int bad = 0; bad < RANKS; bad++) {
        struct err theirs = { 0 };
        char start[16];

        if (comm_rank(comm) >= bad)
            err_set(&theirs, "trouble of %d", comm_rank(comm));
        MUST(comm_agree(comm, &theirs, comm_rank(comm) >= bad) == -1);
        snprintf(start, sizeof(start), "rank %d (", bad);
        MUST(strncmp(theirs.text, start, strlen(start)) == 0);
    }
    comm_close(comm);
    return 0;
}

static void all_ranks_meet(void **state)
{
    (void)state;
    run(meet);
}

/* Messages ------------------------------------------------------------------------------ */

#define TAGS 3

static int content(int from, int to, int tag, int round)
{
    return ((from * RANKS + to) * TAGS + tag) * 100 + round;
}

/* Every rank to every rank, itself, too, by every tag: no two are mixed up. */
static void send_round(struct comm *comm, struct comm_request **requests, int round,
                       struct err *err)
{
    int out[RANKS * TAGS], in[RANKS * TAGS], me = comm_rank(comm), top = comm_max_tag(comm);

    for (int i = 0; i < RANKS * TAGS; i++) {
        int peer = i / TAGS, tag = i % TAGS;

        out[i] = content(me, peer, tag, round);
        MUST(comm_send(comm, &out[i], sizeof(int), peer, top - tag, requests[2 * i], err) == 0);
    }
    for (int i = RANKS * TAGS - 1; i >= 0; i--)
        MUST(comm_receive(comm, &in[i], sizeof(int), i / TAGS, top - i % TAGS,
                          requests[2 * i + 1], err) == 0);
    for (int i = 0; i < 2 * RANKS * TAGS; i++)
        MUST(comm_wait(requests[i], err) == 0);
    for (int i = 0; i < RANKS * TAGS; i++)
        MUST(in[i] == content(i / TAGS, me, i % TAGS, round));
}

static int send_all(const struct launch *launch, void *context, struct err *err)
{
    struct comm *comm = comm_open(launch, err);
    struct comm_request *requests[2 * RANKS * TAGS];

    (void)context;
    MUST(comm);
    for (int i = 0; i < 2 * RANKS * TAGS; i++)
        requests[i] = comm_request_new(comm);
    for (int round = 0; round < 30; round++)
        send_round(comm, requests, round, err);
    MUST(comm_send(comm, NULL, 0, 0, comm_max_tag(comm) + 1, requests[0], err) == -1);
    for (int i = 0; i < 2 * RANKS * TAGS; i++)
        comm_request_free(requests[i]);
    comm_close(comm);
    return 0;
}

static void messages_arrive_where_they_are_sent(void **state)
{
    (void)state;
    run(send_all);
}

/* Sums ---------------------------------------------------------------------------------- */

#define COUNT 1000

/* Their sum depends on the order; products are exact. */
static float summand(int rank, size_t i)
{
    return (float)((int)((i * 7919 + (size_t)rank * 104729) % 1000) - 500) *
           (rank % 2 ? 1.0f / 65536 : 4096.0f);
}

static void sum(struct comm_group *group, int n, const int *ranks, size_t lent, struct err *err)
{
    struct comm_request *request = comm_request_new(group->comm);
    char *scratch = mem_new(lent + 1, 1);
    float data[COUNT];

    if (lent)
        comm_request_lend(request, scratch, lent);
    for (size_t i = 0; i < COUNT; i++)
        data[i] = summand(comm_rank(group->comm), i);
    MUST(comm_allreduce(group, data, COUNT, DTYPE_F32, true, request, err) == 0);
    MUST(comm_wait(request, err) == 0);
    for (size_t i = 0; i < COUNT; i++) {
        float expected = summand(ranks[0], i);

        for (int m = 1; m < n; m++)
            expected += summand(ranks[m], i);
        MUST(data[i] == expected);
    }
    comm_request_free(request);
    free(scratch);
}

static int sum_up(const struct launch *launch, void *context, struct err *err)
{
    static const struct { int n, ranks[RANKS]; } lists[] = {
        { 6, { 0, 1, 2, 3, 4, 5 } }, { 3, { 5, 1, 0 } }, { 2, { 2, 3 } }, { 4, { 4, 3, 5, 2 } },
    };
    enum { LISTS = sizeof(lists) / sizeof(lists[0]) };
    struct comm *comm = comm_open(launch, err);

    (void)context;
    MUST(comm);
    /* More in all than there is room for at once. */
    for (int round = 0; round < 40; round++) {
        struct comm_group *groups[LISTS] = { NULL };

        for (int l = 0; l < LISTS; l++)
            for (int i = 0; i < lists[l].n; i++)
                if (lists[l].ranks[i] == comm_rank(comm))
                    MUST(groups[l] = comm_group_new(comm, lists[l].n, lists[l].ranks, err));
        for (int l = 0; l < LISTS; l++)
            if (groups[l])
                sum(groups[l], lists[l].n, lists[l].ranks, round % 2 ? 512 : 0, err);
        for (int l = 0; l < LISTS; l++)
            comm_group_free(groups[l]);
    }
    comm_close(comm);
    return 0;
}

static void groups_of_any_ranks_sum_in_rank_order(void **state)
{
    struct process processes[PROCESSES];

    (void)state;
    run_as(processes, sum_up, 32767);
    for (int i = 0; i < PROCESSES; i++)
        assert_int_equal(processes[i].code, 0);
}

/* Tags ---------------------------------------------------------------------------------- */

static int never(const struct launch *launch, void *context, struct err *err)
{
    (void)launch;
    (void)context;
    MUST(false);
    return 0;
}

static void too_few_tags_are_refused_by_the_first(void **state)
{
    struct process processes[PROCESSES];

    (void)state;
    run_as(processes, never, 1000);
    for (int i = 0; i < PROCESSES; i++)
        assert_int_equal(processes[i].code, EXIT_USAGE);
    assert_non_null(strstr(processes[0].err.text, "tags up to 1000, which are too few for 3 ranks"));
    assert_string_equal(processes[1].err.text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_numbered_process_by_process),
        cmocka_unit_test(all_ranks_meet),
        cmocka_unit_test(messages_arrive_where_they_are_sent),
        cmocka_unit_test(groups_of_any_ranks_sum_in_rank_order),
        cmocka_unit_test(too_few_tags_are_refused_by_the_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
