/* SPDX-License-Identifier: MIT */
/* pmix_clients RANKS READERS BYTES...: one PMIx server, and so many clients that each exchange
 * messages of so many bytes one after the other, as ranks do at their start (src/comm/mpi_pmix.c).
 *
 * Each client reads what all gave, READERS at a time: those of one node, each of which has a server
 * and cores of its own. Prints a line for each part: what it was, and seconds to its end on the last
 * client, of connecting from the first one's begin, else from the last one's: nobody is waited for.
 * Of reading it is the nodes' median, and the most of them behind it.
 */
#include "config.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wconversion"
#include <pmix_server.h>
#include <pmix.h>
#pragma GCC diagnostic pop
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NSPACE "tasuki-clients"
#define MOST_RANKS 4096
#define MOST_ROUNDS 16
#define PATIENCE 600            /* seconds of a client */

extern char **environ;

/* The last begin and the last end of a part, of connecting the first begin. */
struct part {
    double begin, end;
};

/* What clients and server share. */
struct board {
    int ranks, readers, rounds;
    int bytes[MOST_ROUNDS];
    struct part connect, fence[MOST_ROUNDS];
    struct part read[MOST_ROUNDS][MOST_RANKS];      /* of each node */
    int done[MOST_RANKS];                           /* clients of the node that have read */
    sem_t turn[MOST_RANKS];                         /* may they read? */
    pthread_mutex_t lock;                           /* between processes */
};

static struct board *board;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void note(struct part *part, double begin)
{
    double end = now();

    pthread_mutex_lock(&board->lock);
    if (part->begin <= 0 || (part == &board->connect ? begin < part->begin : begin > part->begin))
        part->begin = begin;
    part->end = end > part->end ? end : part->end;
    pthread_mutex_unlock(&board->lock);
}

static void die(const char *what, pmix_status_t status)
{
    fprintf(stderr, "pmix_clients: %s: %s\n", what, PMIx_Error_string(status));
    _exit(1);
}

static void check(const char *what, pmix_status_t status)
{
    if (status != PMIX_SUCCESS)
        die(what, status);
}

/* A client ----------------------------------------------------------------------------- */

static void fill(char *data, int size, int rank, int round)
{
    for (int i = 0; i < size; i++)
        data[i] = (char)(rank + 31 * round + i);
}

static void read_all(const pmix_proc_t *me, const char *key, int round, char *wanted)
{
    pmix_proc_t proc;
    int size = board->bytes[round];

    PMIX_LOAD_PROCID(&proc, me->nspace, 0);
    for (int r = 0; r < board->ranks; r++) {
        pmix_value_t *value;

        proc.rank = (pmix_rank_t)r;
        check("PMIx_Get", PMIx_Get(&proc, key, NULL, 0, &value));
        fill(wanted, size, r, round);
        if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size != (size_t)size ||
            memcmp(value->data.bo.bytes, wanted, (size_t)size) != 0)
            die("other bytes than were given", PMIX_ERROR);
        PMIX_VALUE_RELEASE(value);
    }
}

static int n_nodes(void)
{
    return (board->ranks + board->readers - 1) / board->readers;
}

/* Clients of a node: the last one may have fewer. */
static int node_size(int node)
{
    int left = board->ranks - node * board->readers;

    return left < board->readers ? left : board->readers;
}

static void let(int node)
{
    for (int i = 0; i < node_size(node); i++)
        sem_post(&board->turn[node]);
}

/* The last one of a node lets the next node read, and that of the last node the first one, in the
 * next round.
 */
static void leave(int node)
{
    bool last;

    pthread_mutex_lock(&board->lock);
    last = ++board->done[node] == node_size(node);
    if (last)
        board->done[node] = 0;
    pthread_mutex_unlock(&board->lock);
    if (last)
        let((node + 1) % n_nodes());
}

static void read_in_turn(const pmix_proc_t *me, const char *key, int round, char *wanted)
{
    int node = (int)me->rank / board->readers;
    double begin;

    while (sem_wait(&board->turn[node]) != 0)
        ;
    begin = now();
    read_all(me, key, round, wanted);
    note(&board->read[round][node], begin);
    leave(node);
}

static void exchange(const pmix_proc_t *me, int round, char *data)
{
    pmix_proc_t all;
    pmix_value_t value = { .type = PMIX_BYTE_OBJECT };
    pmix_info_t info;
    bool yes = true;
    char key[32];
    double begin = now();

    snprintf(key, sizeof(key), "tasuki.%d", round);
    fill(data, board->bytes[round], (int)me->rank, round);
    value.data.bo.bytes = data;
    value.data.bo.size = (size_t)board->bytes[round];
    check("PMIx_Put", PMIx_Put(PMIX_GLOBAL, key, &value));
    check("PMIx_Commit", PMIx_Commit());
    PMIX_LOAD_PROCID(&all, me->nspace, PMIX_RANK_WILDCARD);
    PMIX_INFO_CONSTRUCT(&info);
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    check("PMIx_Fence", PMIx_Fence(&all, 1, &info, 1));
    note(&board->fence[round], begin);
    read_in_turn(me, key, round, data);
}

static int be_client(const char *fd)
{
    int most = 1;
    double begin = now();
    pmix_proc_t me;
    char *data;

    alarm(PATIENCE);            /* where another one has failed, its turn does not come */
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(fd), 0);
    if (board == MAP_FAILED)
        return 1;
    check("PMIx_Init", PMIx_Init(&me, NULL, 0));
    note(&board->connect, begin);
    for (int i = 0; i < board->rounds; i++)
        most = board->bytes[i] > most ? board->bytes[i] : most;
    data = malloc((size_t)most);
    for (int i = 0; i < board->rounds; i++)
        exchange(&me, i, data);
    free(data);
    check("PMIx_Finalize", PMIx_Finalize(NULL, 0));
    return 0;
}

/* The server --------------------------------------------------------------------------- */

static pmix_status_t client_ok(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done,
                               void *data)
{
    (void)proc;
    (void)object;
    if (done)
        done(PMIX_SUCCESS, data);
    return PMIX_SUCCESS;
}

/* All ranks are this server's: what it has collected of them is all. */
static pmix_status_t fence(const pmix_proc_t procs[], size_t n, const pmix_info_t info[],
                           size_t n_info, char *data, size_t size, pmix_modex_cbfunc_t done,
                           void *user)
{
    (void)procs;
    (void)n;
    (void)info;
    (void)n_info;
    done(PMIX_SUCCESS, data, size, user, free, data);
    return PMIX_SUCCESS;
}

static void on_done(pmix_status_t status, void *data)
{
    atomic_store((atomic_int *)data, status == PMIX_SUCCESS ? 1 : -1);
}

/* Of a call that gives 'status' now and the outcome by on_done(). */
static void settle(const char *what, pmix_status_t status, atomic_int *done)
{
    if (status == PMIX_OPERATION_SUCCEEDED)
        return;
    check(what, status);
    while (atomic_load(done) == 0)
        usleep(100);
    if (atomic_load(done) < 0)
        die(what, PMIX_ERROR);
}

static void register_job(void)
{
    pmix_info_t *info;
    char host[256] = "localhost", *nodes, *ranks, *list = calloc(1, (size_t)board->ranks * 6 + 1);
    uint32_t size = (uint32_t)board->ranks;
    pmix_nspace_t nspace = NSPACE;
    atomic_int done = 0;

    gethostname(host, sizeof(host) - 1);
    for (int r = 0, at = 0; r < board->ranks; r++)
        at += sprintf(list + at, "%s%d", r ? "," : "", r);
    check("PMIx_generate_regex", PMIx_generate_regex(host, &nodes));
    check("PMIx_generate_ppn", PMIx_generate_ppn(list, &ranks));
    PMIX_INFO_CREATE(info, 6);
    PMIX_INFO_LOAD(&info[0], PMIX_UNIV_SIZE, &size, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[1], PMIX_JOB_SIZE, &size, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[2], PMIX_LOCAL_SIZE, &size, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[3], PMIX_LOCAL_PEERS, list, PMIX_STRING);
    PMIX_INFO_LOAD(&info[4], PMIX_NODE_MAP, nodes, PMIX_STRING);
    PMIX_INFO_LOAD(&info[5], PMIX_PROC_MAP, ranks, PMIX_STRING);
    settle("PMIx_server_register_nspace",
           PMIx_server_register_nspace(nspace, board->ranks, info, 6, on_done, &done), &done);
    PMIX_INFO_FREE(info, 6);
    free(list);
}

static pid_t start(char *const *words, int rank)
{
    pmix_proc_t proc;
    atomic_int done = 0;
    char **variables = NULL;
    pid_t child;

    PMIX_LOAD_PROCID(&proc, NSPACE, (pmix_rank_t)rank);
    settle("PMIx_server_register_client",
           PMIx_server_register_client(&proc, getuid(), getgid(), NULL, on_done, &done), &done);
    for (char **v = environ; *v; v++)
        {
            pmix_status_t status;

            PMIX_ARGV_APPEND(status, variables, *v);
            check("environment", status);
        }
    check("PMIx_server_setup_fork", PMIx_server_setup_fork(&proc, &variables));
    child = fork();
    if (child == 0) {
        execve("/proc/self/exe", words, variables);
        _exit(127);
    }
    PMIX_ARGV_FREE(variables);
    return child;
}

static double seconds(const struct part *part)
{
    return part->end - part->begin;
}

static int by_seconds(const void *a, const void *b)
{
    double x = seconds(a), y = seconds(b);

    return (x > y) - (x < y);
}

static void print(void)
{
    int nodes = n_nodes();

    printf("%-16s %5d bytes  %8.4f s\n", "clients connect", 0, seconds(&board->connect));
    for (int i = 0; i < board->rounds; i++) {
        struct part *read = board->read[i];

        printf("%-16s %5d bytes  %8.4f s\n", "put and fence", board->bytes[i],
               seconds(&board->fence[i]));
        qsort(read, (size_t)nodes, sizeof(*read), by_seconds);
        printf("%-16s %5d bytes  %8.4f s  (the slowest of %d nodes %.4f s)\n", "read all",
               board->bytes[i], seconds(&read[nodes / 2]), nodes, seconds(&read[nodes - 1]));
    }
}

static int serve(const struct board *given)
{
    pmix_server_module_t module = { .client_connected = client_ok, .client_finalized = client_ok,
                                    .fence_nb = fence };
    char fd[16];
    char *words[] = { "pmix_clients", fd, NULL };
    int file = memfd_create("board", 0), bad = 0, status;
    pthread_mutexattr_t shared;

    if (file < 0 || ftruncate(file, sizeof(*board)) < 0)
        return 1;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    *board = *given;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&board->lock, &shared);
    for (int i = 0; i < MOST_RANKS; i++)
        sem_init(&board->turn[i], 1, 0);
    let(0);
    snprintf(fd, sizeof(fd), "%d", file);
    check("PMIx_server_init", PMIx_server_init(&module, NULL, 0));
    register_job();
    for (int r = 0; r < board->ranks; r++)
        bad |= start(words, r) < 0;
    while (wait(&status) > 0)
        bad |= status != 0;
    PMIx_server_finalize();
    if (!bad)
        print();
    return bad;
}

int main(int argc, char **argv)
{
    static struct board given;

    if (argc == 2)
        return be_client(argv[1]);
    given.ranks = argc > 3 ? atoi(argv[1]) : 0;
    given.readers = argc > 3 ? atoi(argv[2]) : 0;
    given.rounds = argc - 3;
    for (int i = 0; i < given.rounds && i < MOST_ROUNDS; i++)
        given.bytes[i] = atoi(argv[3 + i]);
    if (given.ranks < 1 || given.ranks > MOST_RANKS || given.readers < 1 ||
        given.rounds > MOST_ROUNDS)
        return fprintf(stderr, "usage: pmix_clients RANKS READERS BYTES...\n"), 2;
    return serve(&given);
}
