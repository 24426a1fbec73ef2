/* SPDX-License-Identifier: MIT */
/* Ranks that are threads of one process. */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "comm/comm.h"
#include "comm/crew.h"

#define RANKS 4
#define ROUNDS 40

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static int run_as(int n, int (*work)(const struct launch *, void *, struct err *), void *context)
{
    struct launch launch = { .kind = LAUNCH_ALONE };
    struct err err = { 0 };
    int code = crew_run(n, &launch, work, context, &err);

    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
    return code;
}

/* Control ------------------------------------------------------------------------------- */

static int exchange_all(const struct launch *launch, void *context, struct err *err)
{
    struct comm *comm = comm_open(launch, err);
    int me = comm_rank(comm), n = comm_size(comm);
    const void *parts[RANKS];
    size_t sizes[RANKS];

    MUST(n == *(const int *)context);
    for (int round = 0; round < ROUNDS; round++) {
        char mine[RANKS * ROUNDS] = { 0 };
        size_t size = (size_t)(me * round);
        void *block, *data = mine;

        memset(mine, 'a' + me, sizeof(mine));
        MUST(comm_exchange(comm, mine, size, &block, parts, sizes, err) == 0);
        for (int r = 0; r < n; r++)
            MUST(sizes[r] == (size_t)(r * round) &&
                 (sizes[r] == 0 || ((const char *)parts[r])[sizes[r] - 1] == 'a' + r));
        free(block);
        size = (size_t)round;
        MUST(comm_broadcast(comm, round % n, &data, &size, err) == 0);
        MUST(size == (size_t)round && (!round || *(char *)data == 'a' + round % n));
        if (me != round % n)
            free(data);
    }
    comm_close(comm);
    return 0;
}

static void all_learn_what_each_has(void **state)
{
    (void)state;
    for (int n = 1; n <= RANKS; n++)
        assert_int_equal(run_as(n, exchange_all, &n), 0);
}

static int agree(const struct launch *launch, void *context, struct err *err)
{
    struct comm *comm = comm_open(launch, err);
    int me = comm_rank(comm);

    (void)context;
    MUST(comm_agree(comm, err, 0) == 0);
    if (me >= 2)
        err_set_code(err, EXIT_USAGE, "trouble of %d", me);
    MUST(comm_agree(comm, err, me >= 2) == -1);
    MUST(strncmp(err->text, "rank 2 (", 8) == 0 && strstr(err->text, "trouble of 2"));
    MUST(err->code == EXIT_USAGE && comm_agreed(comm));
    err->text[0] = '\0';
    comm_close(comm);
    return me == 3 ? 7 : 0;
}

static void all_learn_of_a_failure_and_the_result_is_not_that_of_rank_0_alone(void **state)
{
    (void)state;
    assert_int_equal(run_as(RANKS, agree, NULL), 7);
}

/* Messages ------------------------------------------------------------------------------ */

enum { MOST = 5000, TAGS = 3 };

struct traffic {
    struct comm_request *sends[RANKS][TAGS], *receives[RANKS][TAGS];
    unsigned char out[RANKS][TAGS][MOST], in[RANKS][TAGS][MOST];
};

/* The same on both ends. */
static size_t bytes_of(int from, int to, int tag, int round)
{
    unsigned seed = (unsigned)(((from * RANKS + to) * TAGS + tag) * ROUNDS + round);

    return next_random(&seed) % 4 ? next_random(&seed) % MOST : 0;
}

static unsigned char byte_of(int from, int to, int tag, int round)
{
    return (unsigned char)(from * 61 + to * 17 + tag * 5 + round);
}

/* Sends and receives of a round in an order of this rank's own; sometimes it looks on between. */
static void post_round(struct comm *comm, struct traffic *t, int round, unsigned *random,
                       struct err *err)
{
    int me = comm_rank(comm), n = 2 * RANKS * TAGS;
    unsigned start = next_random(random) % (unsigned)n;

    for (int i = 0; i < n; i++) {
        int which = (int)((start + (unsigned)i * 5) % (unsigned)n);
        int peer = which / 2 / TAGS, tag = which / 2 % TAGS;
        bool done;

        if (which % 2) {
            size_t bytes = bytes_of(me, peer, tag, round);

            memset(t->out[peer][tag], byte_of(me, peer, tag, round), MOST);
            MUST(comm_send(comm, bytes ? t->out[peer][tag] : NULL, bytes, peer, tag,
                           t->sends[peer][tag], err) == 0);
        } else {
            size_t bytes = bytes_of(peer, me, tag, round);

            MUST(comm_receive(comm, bytes ? t->in[peer][tag] : NULL, bytes, peer, tag,
                              t->receives[peer][tag], err) == 0);
        }
        if (next_random(random) % 3 == 0)
            MUST(comm_test(t->sends[me][tag], &done, err) == 0);
    }
}

static void finish_round(struct comm *comm, struct traffic *t, int round, struct err *err)
{
    int me = comm_rank(comm);

    for (int peer = 0; peer < RANKS; peer++)
        for (int tag = 0; tag < TAGS; tag++) {
            size_t bytes = bytes_of(peer, me, tag, round);

            MUST(comm_wait(t->receives[peer][tag], err) == 0);
            for (size_t i = 0; i < bytes; i++)
                MUST(t->in[peer][tag][i] == byte_of(peer, me, tag, round));
            MUST(comm_wait(t->sends[peer][tag], err) == 0);
        }
}

static int send_all(const struct launch *launch, void *context, struct err *err)
{
    struct comm *comm = comm_open(launch, err);
    struct traffic *t = mem_new(1, sizeof(*t));
    unsigned random = (unsigned)comm_rank(comm) + 1;

    (void)context;
    for (int i = 0; i < RANKS * TAGS; i++) {
        t->sends[i / TAGS][i % TAGS] = comm_request_new(comm);
        t->receives[i / TAGS][i % TAGS] = comm_request_new(comm);
    }
    for (int round = 0; round < ROUNDS; round++) {
        post_round(comm, t, round, &random, err);
        finish_round(comm, t, round, err);
    }
    for (int i = 0; i < RANKS * TAGS; i++) {
        comm_request_free(t->sends[i / TAGS][i % TAGS]);
        comm_request_free(t->receives[i / TAGS][i % TAGS]);
    }
    free(t);
    comm_close(comm);
    return 0;
}

static void messages_arrive_whole_in_any_order_of_posting(void **state)
{
    (void)state;
    assert_int_equal(run_as(RANKS, send_all, NULL), 0);
}

/* Rank 0 sends twice with one tag, and rank 1 takes its time. */
static int send_in_turn(const struct launch *launch, void *context, struct err *err)
{
    struct comm *comm = comm_open(launch, err);
    struct comm_request *requests[2] = { comm_request_new(comm), comm_request_new(comm) };
    int values[2] = { 1, 2 }, came[2] = { 0, 0 };
    bool done = true;

    (void)context;
    for (int i = 0; i < 2 && launch->rank == 0; i++)
        MUST(comm_send(comm, &values[i], sizeof(int), 1, 0, requests[i], err) == 0);
    if (launch->rank == 0)
        MUST(comm_test(requests[0], &done, err) == 0 && !done);
    MUST(comm_fence(comm, err) == 0);
    for (int i = 0; i < 2 && launch->rank == 1; i++)
        MUST(comm_receive(comm, &came[i], sizeof(int), 0, 0, requests[i], err) == 0);
    for (int i = 0; i < 2; i++)
        MUST(comm_wait(requests[i], err) == 0);
    MUST(launch->rank == 0 || (came[0] == 1 && came[1] == 2));
    comm_request_free(requests[0]);
    comm_request_free(requests[1]);
    comm_close(comm);
    return 0;
}

static void no_send_ends_before_its_receive_began_and_none_overtakes(void **state)
{
    (void)state;
    assert_int_equal(run_as(2, send_in_turn, NULL), 0);
}

static int send_too_much(const struct launch *launch, void *context, struct err *err)
{
    struct comm *comm = comm_open(launch, err);
    struct comm_request *request = comm_request_new(comm);
    char bytes[8] = { 0 };
    int bad;

    (void)context;
    if (launch->rank == 0)
        bad = comm_send(comm, bytes, 8, 1, 3, request, err);
    else
        bad = comm_receive(comm, bytes, 4, 0, 3, request, err);
    MUST(bad || comm_wait(request, err) == -1);
    MUST(strstr(err->text, launch->rank ? "rank 0" : "rank 1"));
    err->text[0] = '\0';
    comm_request_free(request);
    comm_close(comm);
    return 0;
}

static void both_ends_fail_where_sizes_differ(void **state)
{
    (void)state;
    assert_int_equal(run_as(2, send_too_much, NULL), 0);
}

/* Sums ---------------------------------------------------------------------------------- */

static float summand(int rank, size_t i)
{
    unsigned seed = (unsigned)rank * 7919u + (unsigned)i;

    return ((float)(next_random(&seed) & 0xffff) - 32768.0f) * (rank % 2 ? 1e-3f : 1e3f);
}

/* Each summand is rounded by itself, as what ranks have: never part of a fused multiply-add. */
static float in_order(const int *ranks, int n, size_t i)
{
    volatile float term = summand(ranks[0], i);
    float sum = term;

    for (int m = 1; m < n; m++) {
        term = summand(ranks[m], i);
        sum += term;
    }
    return sum;
}

/* At once, and in two halves, both under way together. */
static void sum_twice(struct comm *comm, struct comm_group *group, const int *ranks, int n,
                      size_t length, struct err *err)
{
    struct comm_request *a = comm_request_new(comm), *b = comm_request_new(comm);
    float *once = mem_new(length, sizeof(*once)), *halves = mem_new(length, sizeof(*halves));

    for (size_t i = 0; i < length; i++)
        once[i] = halves[i] = summand(comm_rank(comm), i);
    MUST(comm_allreduce(group, once, length, DTYPE_F32, true, a, err) == 0);
    MUST(comm_reduce_scatter(group, halves, length, DTYPE_F32, b, err) == 0);
    MUST(comm_wait(b, err) == 0);
    MUST(comm_all_gather(group, halves, length, DTYPE_F32, b, err) == 0);
    MUST(comm_wait(b, err) == 0 && comm_wait(a, err) == 0);
    for (size_t i = 0; i < length; i++)
        MUST(once[i] == in_order(ranks, n, i) && halves[i] == once[i]);
    comm_request_free(a);
    comm_request_free(b);
    free(once);
    free(halves);
}

static int sum_all(const struct launch *launch, void *context, struct err *err)
{
    static const int lists[][RANKS] = { { 0, 1, 2, 3 }, { 3, 1, 0, 2 }, { 2, 0 }, { 1, 3 },
                                        { 3, 2, 1 }, { 0, 1, 2, 3 } };
    static const int sizes[] = { 4, 4, 2, 2, 3, 4 };
    enum { GROUPS = sizeof(sizes) / sizeof(sizes[0]) };
    struct comm *comm = comm_open(launch, err);
    struct comm_group *groups[GROUPS] = { NULL };

    (void)context;
    for (int g = 0; g < GROUPS; g++)
        for (int m = 0; m < sizes[g]; m++)
            if (lists[g][m] == launch->rank)
                groups[g] = comm_group_new(comm, sizes[g], lists[g], err);
    for (int round = 0; round < ROUNDS; round++)
        for (int g = 0; g < GROUPS; g++)
            if (groups[g])
                sum_twice(comm, groups[g], lists[g], sizes[g], (size_t)(1 + round * g * 13), err);
    for (int g = 0; g < GROUPS; g++)
        comm_group_free(groups[g]);
    comm_close(comm);
    return 0;
}

static void sums_are_those_in_the_order_of_the_members_in_each_group(void **state)
{
    (void)state;
    assert_int_equal(run_as(RANKS, sum_all, NULL), 0);
}

static int sum_unlike(const struct launch *launch, void *context, struct err *err)
{
    struct comm *comm = comm_open(launch, err);
    struct comm_group *group = comm_group_new(comm, 2, (const int[]){ 0, 1 }, err);
    struct comm_request *request = comm_request_new(comm);
    double data[2] = { 0 };
    atomic_int *refused = context;

    comm_set_deadline(comm, 0.2);
    if (comm_allreduce(group, data, (size_t)launch->rank + 1, DTYPE_F64, true, request, err)) {
        MUST(strstr(err->text, "different data"));
        atomic_fetch_add(refused, 1);
    } else {
        MUST(comm_wait(request, err) == -1 && strstr(err->text, "nothing moved"));
    }
    err->text[0] = '\0';
    comm_set_deadline(comm, 10);
    comm_request_free(request);
    comm_group_free(group);
    comm_close(comm);
    return 0;
}

static void a_sum_of_different_lengths_is_refused_and_no_wait_is_for_ever(void **state)
{
    atomic_int refused = 0;

    (void)state;
    assert_int_equal(run_as(2, sum_unlike, &refused), 0);
    assert_int_equal(refused, 1);
}

/* Failures ------------------------------------------------------------------------------ */

static void tell(void *data, const char *text)
{
    fprintf(stderr, "%s: %s\n", (const char *)data, text);
}

/* Rank 2 fails, while the others wait in three ways; whoever comes second is to be silent. */
static int fail_alone(const struct launch *launch, void *context, struct err *err)
{
    struct comm *comm = comm_open(launch, err);
    struct comm_request *request = comm_request_new(comm);
    struct comm_group *group = comm_group_new(comm, RANKS, (const int[]){ 0, 1, 2, 3 }, err);
    int bad = -1;
    double one = 1;

    (void)context;
    if (launch->rank == 2)
        err_set_code(err, EXIT_FOUND, "the disk is full");
    else if (launch->rank == 0)
        bad = comm_allreduce(group, &one, 1, DTYPE_F64, true, request, err) ||
              comm_wait(request, err);
    else if (launch->rank == 1)
        bad = comm_receive(comm, &one, 8, 2, 0, request, err) || comm_wait(request, err);
    else
        bad = comm_fence(comm, err);
    MUST(bad);
    comm_tell(comm, tell, (void *)(uintptr_t)"log");
    comm_follow(comm, err);
    fprintf(stderr, "%s\n", err->text);
    comm_abort(comm, (int)err->code);
    return 0;
}

/* Rank 1 computes and does not come back. */
static int hang_alone(const struct launch *launch, void *context, struct err *err)
{
    struct comm *comm = comm_open(launch, err);
    struct comm_request *request = comm_request_new(comm);
    double one = 1;
    int bad;

    (void)context;
    comm_at(comm, "F", launch->rank, 5, 2);
    MUST(comm_fence(comm, err) == 0);
    if (launch->rank == 0)      /* who then waits to receive */
        comm_set_deadline(comm, 3);
    comm_at(comm, "F", launch->rank, 5, 2);
    if (launch->rank == 1)
        sleep(100);
    if (launch->rank == 0)
        bad = comm_receive(comm, &one, 8, 1, 0, request, err) || comm_wait(request, err);
    else
        bad = comm_fence(comm, err);
    MUST(bad);
    comm_follow(comm, err);
    fprintf(stderr, "%s\n", comm_standstill(comm) ? err->text : "where are all?");
    comm_abort(comm, (int)err->code);
    return 0;
}

/* What a child process of ranks says, and its status. */
static int run_apart(int (*rank)(const struct launch *, void *, struct err *), char text[1024])
{
    int ends[2], status;
    ssize_t n;
    pid_t child;

    memset(text, 0, 1024);
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        _exit(run_as(RANKS, rank, NULL));
    }
    close(ends[1]);
    for (size_t used = 0; (n = read(ends[0], text + used, 1023 - used)) > 0;)
        used += (size_t)n;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void one_that_fails_ends_all_with_its_code_and_its_word_alone(void **state)
{
    char text[1024], *word;

    (void)state;
    assert_int_equal(run_apart(fail_alone, text), EXIT_FOUND);
    assert_memory_equal(text, "log: rank 2 (", 13);
    word = strchr(text, '\n') + 1;
    assert_memory_equal(word, "rank 2 (", 8);
    assert_contains(word, "): the disk is full\n");
    assert_null(strchr(strchr(word, '\n') + 1, '\n'));
}

static void one_that_hangs_is_named_with_what_it_does(void **state)
{
    char text[1024];

    (void)state;
    assert_int_equal(run_apart(hang_alone, text), EXIT_FAILED);
    assert_contains(text, "seconds; rank 1 (");
    assert_contains(text, ") is in step 5, stage 1, F of micro-batch 2: computes, for ");
    assert_contains(text, "; rank 0 (");
    assert_contains(text, ") waits in step 5, stage 0, F of micro-batch 2: receives from "
                          "rank 1\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_learn_what_each_has),
        cmocka_unit_test(all_learn_of_a_failure_and_the_result_is_not_that_of_rank_0_alone),
        cmocka_unit_test(messages_arrive_whole_in_any_order_of_posting),
        cmocka_unit_test(no_send_ends_before_its_receive_began_and_none_overtakes),
        cmocka_unit_test(both_ends_fail_where_sizes_differ),
        cmocka_unit_test(sums_are_those_in_the_order_of_the_members_in_each_group),
        cmocka_unit_test(a_sum_of_different_lengths_is_refused_and_no_wait_is_for_ever),
        cmocka_unit_test(one_that_fails_ends_all_with_its_code_and_its_word_alone),
        cmocka_unit_test(one_that_hangs_is_named_with_what_it_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
