/* SPDX-License-Identifier: MIT */
/* Checks of comm.h over as many ranks as a launcher gives: comm_check [-N] [CHECK] [SECONDS].
 * With -N each process is N ranks.
 *
 * Without arguments all checks run; rank 0 prints one line for each. "die RANK SECONDS": that
 * rank leaves in the midst of the others' work; the others must end by that deadline, or when
 * they notice. "fail RANK SECONDS": the same, but it says why. "wait SECONDS": the ranks pass a
 * token around until somebody ends them, or one of them.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "comm/crew.h"

static _Thread_local struct comm *comm;
static _Thread_local struct err err;

static void give_up(const char *what)
{
    if (comm)
        comm_follow(comm, &err);
    fprintf(stderr, "comm_check: rank %d: %s: %s\n", comm ? comm_rank(comm) : -1, what,
            err.text);
    if (comm)
        comm_abort(comm, EXIT_FAILED);
    exit(err.code ? (int)err.code : EXIT_FAILED);
}

static void expect(bool holds, const char *what)
{
    if (!holds) {
        err_set(&err, "does not hold");
        give_up(what);
    }
}

static void must(int status, const char *what)
{
    if (status)
        give_up(what);
}

/* A byte that tells rank, position and round apart. */
static unsigned char pattern(int rank, size_t i, int round)
{
    return (unsigned char)((size_t)rank * 37 + i * 11 + (size_t)round * 5 + (i >> 8));
}

static void check_exchange_by(int (*exchange)(struct comm *comm, const void *data, size_t size,
                                              void **block, const void **parts, size_t *sizes,
                                              struct err *err))
{
    int n = comm_size(comm), me = comm_rank(comm);
    const void **parts = mem_new((size_t)n, sizeof(*parts));
    size_t *sizes = mem_new((size_t)n, sizeof(*sizes));
    void *block;

    for (int round = 0; round < 5; round++) {
        size_t mine = (size_t)me * 1000 * (size_t)round;    /* rank 0, round 0: nothing */
        unsigned char *bytes = mem_new(mine, 1);

        for (size_t i = 0; i < mine; i++)
            bytes[i] = pattern(me, i, round);
        must(exchange(comm, bytes, mine, &block, parts, sizes, &err), "exchange");
        for (int r = 0; r < n; r++) {
            expect(sizes[r] == (size_t)r * 1000 * (size_t)round, "exchanged size");
            for (size_t i = 0; i < sizes[r]; i++)
                expect(((const unsigned char *)parts[r])[i] == pattern(r, i, round),
                       "exchanged bytes");
        }
        free(block);
        free(bytes);
    }
    free(parts);
    free(sizes);
}

static void check_exchange(void)
{
    check_exchange_by(comm_exchange);
}

/* The last rank comes when it has what the first one, which is there, has posted. */
static void check_introduction(void)
{
    int me = comm_rank(comm), last = comm_size(comm) - 1;
    size_t size = (size_t)8 << 20;
    char *bytes = mem_new(size, 1);
    struct comm_request *request = comm_request_new(comm);

    if (me == 0 && last > 0)
        must(comm_send(comm, bytes, size, last, 0, request, &err), "send");
    if (me == last && last > 0)
        must(comm_receive(comm, bytes, size, 0, 0, request, &err), "receive");
    if (me == last)
        must(comm_wait(request, &err), "wait for a message");
    check_exchange_by(comm_introduce);
    must(comm_wait(request, &err), "wait for a send");
    comm_request_free(request);
    free(bytes);
    if (comm_rank(comm) == 0)
        printf("introduced by %s\n", comm_way(comm));
}

/* One rank comes late; nobody may leave before it has come. All ranks are on one clock. */
static void check_fence(void)
{
    int n = comm_size(comm), me = comm_rank(comm);
    const void **parts = mem_new((size_t)n, sizeof(*parts));
    size_t *sizes = mem_new((size_t)n, sizeof(*sizes));
    void *block;

    for (int round = 0; round < 10; round++) {
        int late = round % n;
        double times[2], arrival;

        if (me == late)
            usleep(20000);
        times[0] = clock_now();
        must(comm_fence(comm, &err), "fence");
        times[1] = clock_now();
        must(comm_exchange(comm, times, sizeof(times), &block, parts, sizes, &err), "times");
        memcpy(&arrival, parts[late], sizeof(arrival));
        for (int r = 0; r < n; r++) {
            double left;

            memcpy(&left, (const char *)parts[r] + sizeof(double), sizeof(left));
            expect(left >= arrival, "nobody leaves a fence before all have come");
        }
        free(block);
    }
    free(parts);
    free(sizes);
}

static void check_broadcast(void)
{
    int n = comm_size(comm), me = comm_rank(comm);

    for (int root = 0; root < n; root++) {
        size_t size = (size_t)(root + 1) * 5000;
        unsigned char *bytes = mem_new(size, 1);
        void *data = bytes;

        for (size_t i = 0; i < size; i++)
            bytes[i] = pattern(root, i, 0);
        if (me != root) {
            data = NULL;
            size = 0;
        }
        must(comm_broadcast(comm, root, &data, &size, &err), "broadcast");
        expect(size == (size_t)(root + 1) * 5000 && memcmp(data, bytes, size) == 0,
               "what was broadcast");
        if (me != root)
            free(data);
        free(bytes);
    }
}

static void check_agreement(void)
{
    int n = comm_size(comm), me = comm_rank(comm), last = n - 1;
    struct err mine = { 0 };
    char expected[64];

    must(comm_agree(comm, &mine, 0), "agree that nothing failed");
    if (me == last)
        err_set_code(&mine, EXIT_USAGE, "the disk is full");
    expect(comm_agree(comm, &mine, me == last) == -1, "agree that a rank failed");
    expect(mine.code == EXIT_USAGE, "its exit code");
    expect(strstr(mine.text, "the disk is full") != NULL, "its text");
    snprintf(expected, sizeof(expected), "rank %d (", last);
    expect(n == 1 || strncmp(mine.text, expected, strlen(expected)) == 0, "who failed");
}

/* All to all at once, of sizes on both sides of every eager limit, received in another order
 * than sent.
 */
static void check_messages(void)
{
    static const size_t sizes[] = { 0, 1, 1000, 70000, 1 << 20 };
    enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    int n = comm_size(comm), me = comm_rank(comm), total = n * N_SIZES;
    struct comm_request **sends = mem_new((size_t)total, sizeof(*sends));
    struct comm_request **receives = mem_new((size_t)total, sizeof(*receives));
    unsigned char **out = mem_new((size_t)total, sizeof(*out));
    unsigned char **in = mem_new((size_t)total, sizeof(*in));

    for (int i = 0; i < total; i++) {
        sends[i] = comm_request_new(comm);
        receives[i] = comm_request_new(comm);
        out[i] = mem_new(sizes[i % N_SIZES], 1);
        in[i] = mem_new(sizes[i % N_SIZES], 1);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < total; i++) {
            size_t size = sizes[i % N_SIZES];

            for (size_t j = 0; j < size; j++)
                out[i][j] = pattern(me, j, round + i);
            must(comm_send(comm, out[i], size, i / N_SIZES, i % N_SIZES, sends[i], &err),
                 "send");
        }
        for (int i = total - 1; i >= 0; i--)
            must(comm_receive(comm, in[i], sizes[i % N_SIZES], i / N_SIZES, i % N_SIZES,
                              receives[i], &err), "receive");
        for (int i = 0; i < total; i++) {
            must(comm_wait(receives[i], &err), "wait for a message");
            must(comm_wait(sends[i], &err), "wait for a send");
        }
        for (int i = 0; i < total; i++)
            for (size_t j = 0; j < sizes[i % N_SIZES]; j++)
                expect(in[i][j] == pattern(i / N_SIZES, j,
                                           round + me * N_SIZES + i % N_SIZES), "a message");
    }
    for (int i = 0; i < total; i++) {
        comm_request_free(sends[i]);
        comm_request_free(receives[i]);
        free(out[i]);
        free(in[i]);
    }
    free(sends);
    free(receives);
    free(out);
    free(in);
}

/* Summands whose sum depends on the order: only the order of ranks gives 'reference'. */
static float summand(int rank, size_t i)
{
    uint32_t x = (uint32_t)rank * 2654435761u + (uint32_t)i * 40503u;

    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ((float)(x & 0xffff) - 32768.0f) * (rank % 2 ? 1e-3f : 1e3f);
}

/* At once, or as a reduce-scatter, which leaves no more than my slice, and an all-gather. */
static void sum_up(struct comm_group *group, int n, int place, void *data, size_t length,
                   enum dtype dtype, bool deterministic, bool halves,
                   struct comm_request *request)
{
    size_t start = comm_slice_start(length, n, place), size = dtype_size(dtype);
    size_t end = comm_slice_start(length, n, place + 1);

    if (!halves) {
        must(comm_allreduce(group, data, length, dtype, deterministic, request, &err), "sum");
        return;
    }
    must(comm_reduce_scatter(group, data, length, dtype, request, &err),
         "reduce-scatter");
    must(comm_wait(request, &err), "wait for a reduce-scatter");
    if (n > 1) {
        memset(data, 0xff, start * size);
        memset((char *)data + end * size, 0xff, (length - end) * size);
    }
    must(comm_all_gather(group, data, length, dtype, request, &err), "all-gather");
}

/* What the summands of some ranks become. */
struct sums {
    float *in_order;    /* of the ranks, to the bit */
    float *sizes;       /* the sum of their absolute values */
    double integers;    /* what i % 1000 is multiplied by */
};

static struct sums sums_of(int n, const int *ranks, size_t length)
{
    struct sums sums = { mem_new(length, sizeof(float)), mem_new(length, sizeof(float)), 0 };

    for (int r = 0; r < n; r++) {
        sums.integers += ranks[r] + 1;
        for (size_t i = 0; i < length; i++) {
            float x = summand(ranks[r], i);

            sums.in_order[i] = r == 0 ? x : sums.in_order[i] + x;
            sums.sizes[i] += x < 0 ? -x : x;
        }
    }
    return sums;
}

/* 'lent': in scratch that is lent, and too small for all at once. */
static void check_sum(struct comm_group *group, int n, const int *ranks, size_t length,
                      const struct sums *sums, bool deterministic, bool halves, bool lent)
{
    size_t scratch_bytes = 4096 * (size_t)n;
    char *scratch = mem_new(2, scratch_bytes);
    struct comm_request *request = comm_request_new(comm), *second = comm_request_new(comm);
    float *data = mem_new(length, sizeof(*data));
    double *doubles = mem_new(length, sizeof(*doubles));
    int me = comm_rank(comm), place = 0;

    if (lent) {
        comm_request_lend(request, scratch, scratch_bytes);
        comm_request_lend(second, scratch + scratch_bytes, scratch_bytes);
    }
    while (ranks[place] != me)
        place++;
    for (size_t i = 0; i < length; i++) {
        data[i] = summand(me, i);
        doubles[i] = (double)(me + 1) * (double)(i % 1000);
    }
    sum_up(group, n, place, data, length, DTYPE_F32, deterministic, halves, request);
    sum_up(group, n, place, doubles, length, DTYPE_F64, deterministic, halves, second);
    must(comm_wait(second, &err), "wait for a sum");
    must(comm_wait(request, &err), "wait for a sum");
    for (size_t i = 0; i < length; i++) {
        float sum = sums->in_order[i];

        if (deterministic)
            expect(data[i] == sum, "a sum is that in rank order, to the bit");
        else    /* any order: n-1 roundings of at most 2^-24 of the sum of sizes */
            expect((double)(data[i] > sum ? data[i] - sum : sum - data[i]) <=
                   2.0 * (n - 1) * 6e-8 * (double)sums->sizes[i], "a sum in any order");
        expect(doubles[i] == sums->integers * (double)(i % 1000), "a sum of small integers");
    }
    comm_request_free(request);
    comm_request_free(second);
    free(data);
    free(doubles);
    free(scratch);
}

static void check_sums(void)
{
    static const size_t lengths[] = { 1, 3, 1000, 70001 };
    int n = comm_size(comm), me = comm_rank(comm);
    int *ranks = mem_new((size_t)n, sizeof(*ranks));

    /* the whole world, then the ranks from 'first' in reverse order */
    for (int first = -1; first < n; first++) {
        int members = first < 0 ? n : n - first;
        struct comm_group *group;

        if (first > me)
            continue;
        for (int i = 0; i < members; i++)
            ranks[i] = first < 0 ? i : n - 1 - i;
        group = comm_group_new(comm, members, ranks, &err);
        must(group ? 0 : -1, "group");
        for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
            struct sums sums = sums_of(members, ranks, lengths[l]);

            for (int kind = 0; kind < 8; kind++)
                check_sum(group, members, ranks, lengths[l], &sums, kind % 2, kind / 2 % 2,
                          kind / 4);
            free(sums.in_order);
            free(sums.sizes);
        }
        comm_group_free(group);
    }
    free(ranks);
}

/* The others wait for somebody who never sends. */
static void die(int victim, bool says_why)
{
    struct comm_request *request = comm_request_new(comm);
    char byte;

    if (comm_rank(comm) == victim && says_why)
        must(err_set(&err, "a trouble of its own"), "fail");
    if (comm_rank(comm) == victim)
        kill(getpid(), SIGKILL);
    must(comm_receive(comm, &byte, 1, victim, 0, request, &err), "receive");
    must(comm_wait(request, &err), "wait");
    expect(false, "a dead rank sends nothing");
}

static void pass_around(void)
{
    struct comm_request *in = comm_request_new(comm), *out = comm_request_new(comm);
    int n = comm_size(comm), me = comm_rank(comm);
    char byte = 0;

    if (me == 0) {
        puts("waiting");
        fflush(stdout);
    }
    for (;;) {
        must(comm_receive(comm, &byte, 1, (me + n - 1) % n, 0, in, &err), "receive");
        must(comm_send(comm, &byte, 1, (me + 1) % n, 0, out, &err), "send");
        must(comm_wait(out, &err), "wait");
        must(comm_wait(in, &err), "wait");
        usleep(10000);
    }
}

static const struct { const char *name; void (*run)(void); } checks[] = {
    { "exchange", check_exchange },
    { "fence", check_fence },
    { "broadcast", check_broadcast },
    { "agreement", check_agreement },
    { "messages", check_messages },
    { "sums", check_sums },
    { "introduction", check_introduction },
};

/* The words of the command line after -N. */
struct words {
    int n;
    char **words;
};

static int work(const struct launch *launch, void *context, struct err *ignored)
{
    const struct words *w = context;
    const char *only = w->n > 0 ? w->words[0] : NULL;

    (void)ignored;
    comm = comm_open(launch, &err);
    must(comm ? 0 : -1, "open");
    comm_set_deadline(comm, w->n > 2 ? atof(w->words[2]) : 60);
    if (only && strcmp(only, "wait") == 0)
        comm_set_deadline(comm, w->n > 1 ? atof(w->words[1]) : 60);
    if (comm_rank(comm) == 0)
        printf("%d ranks, %s, %s\n", comm_size(comm), comm_name(comm), comm_library(comm));
    if (only && (strcmp(only, "die") == 0 || strcmp(only, "fail") == 0))
        die(w->n > 1 ? atoi(w->words[1]) : 0, strcmp(only, "fail") == 0);
    if (only && strcmp(only, "wait") == 0)
        pass_around();
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        if (only && strcmp(only, checks[i].name) != 0)
            continue;
        checks[i].run();
        must(comm_fence(comm, &err), "fence");
        if (comm_rank(comm) == 0)
            printf("%s: ok\n", checks[i].name);
    }
    if (only && strcmp(only, "hosts") == 0)
        for (int r = 0; r < comm_size(comm) && comm_rank(comm) == 0; r++)
            printf("rank %d: %s\n", r, comm_host(comm, r));
    comm_close(comm);
    return EXIT_OK;
}

int main(int argc, char **argv)
{
    bool many = argc > 1 && argv[1][0] == '-';
    struct words words = { argc - 1 - many, argv + 1 + many };
    struct launch launch;
    int code;

    must(launch_detect(&launch, &err), "launch");
    launch.several = many && launch.kind == LAUNCH_MPI;
    if (launch.several)
        launch.processes = comm_open(&launch, &err);
    must(!launch.several || launch.processes ? 0 : -1, "open processes");
    code = crew_run(many ? atoi(argv[1] + 1) : 1, &launch, work, &words, &err);
    must(err.code ? -1 : 0, "ranks");
    return code;
}
