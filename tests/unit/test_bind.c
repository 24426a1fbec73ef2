/* SPDX-License-Identifier: MIT */
/* Threads of this process that are ranks of it. */
#include "unit.h"

#include <pthread.h>
#include <sched.h>

#include "base/mem.h"
#include "topology/node_read.h"
#include "topology/shape.h"
#include "topology/shares.h"
#include "train/bind.h"

#define RANKS 2

struct rank {
    const struct topo_node *node;
    int rank, threads;
    cpu_set_t inherited;        /* by a thread of its own */
};

static void *look(void *argument)
{
    struct rank *rank = argument;

    sched_getaffinity(0, sizeof(rank->inherited), &rank->inherited);
    return NULL;
}

static void *be_rank(void *argument)
{
    struct rank *rank = argument;
    struct shares_request request = { .node = rank->node, .ranks = RANKS };
    pthread_t thread;

    bind_thread(&request, rank->rank, rank->threads);
    if (pthread_create(&thread, NULL, look, rank) == 0)
        pthread_join(thread, NULL);
    return NULL;
}

/* The node has what this process may use, of which no two are said to be of one core. */
static struct topo_node *here(void)
{
    struct topo_node *node = topo_node_new();
    cpu_set_t own;

    sched_getaffinity(0, sizeof(own), &own);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, &own))
            *(int *)mem_push((void **)&node->usable, &node->n_usable, sizeof(int)) = i;
    return node;
}

/* CPUs that each rank's threads may use, and those that they have in common. */
static int run(int threads, int counts[RANKS])
{
    struct topo_node *node = here();
    struct rank ranks[RANKS];
    pthread_t ids[RANKS];
    cpu_set_t both;

    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){ .node = node, .rank = r, .threads = threads };
        assert_int_equal(pthread_create(&ids[r], NULL, be_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(ids[r], NULL);
        counts[r] = CPU_COUNT(&ranks[r].inherited);
    }
    CPU_AND(&both, &ranks[0].inherited, &ranks[1].inherited);
    topo_node_free(node);
    return CPU_COUNT(&both);
}

static int count_here(void)
{
    struct topo_node *node = here();
    int n = node->n_usable;

    topo_node_free(node);
    return n;
}

static void each_thread_has_a_share_of_its_own(void **state)
{
    int counts[RANKS];

    (void)state;
    if (count_here() < RANKS)
        skip();
    assert_int_equal(run(0, counts), 0);
    assert_true(counts[0] >= 1 && counts[0] < count_here());
    assert_true(counts[1] >= 1 && counts[1] < count_here());
}

static void more_threads_than_a_share_has_may_use_all(void **state)
{
    int counts[RANKS];

    (void)state;
    assert_int_equal(run(count_here() + 1, counts), count_here());
}

static void what_openmp_is_told_stays(void **state)
{
    int counts[RANKS];

    (void)state;
    setenv("OMP_PROC_BIND", "false", 1);
    assert_int_equal(run(0, counts), count_here());
    unsetenv("OMP_PROC_BIND");
}

/* Of a node with two NUMA nodes, a GPU at each, the first rank has the cores near its own. */
static void *be_first(void *argument)
{
    struct topo_node *node = here();
    const int half = node->n_usable / 2, *gpus = argument;
    cpu_set_t *own = mem_new(1, sizeof(*own));

    node->n_numas = node->n_gpus = 2;
    node->numas = mem_new(2, sizeof(*node->numas));
    node->gpus = mem_new(2, sizeof(*node->gpus));
    for (int i = 0; i < 2; i++) {
        char *cpus = set_text(i == 0 ? half : node->n_usable - half, node->usable + (i == 0 ? 0 : half));

        topo_node_set_text(&node->numas[i].cpus, cpus);
        node->numas[i].id = node->gpus[i].numa = i;
        node->gpus[i].seen = true;
        free(cpus);
    }
    node->n_visible = -1;
    bind_rank(node, 2, true, gpus);
    sched_getaffinity(0, sizeof(*own), own);
    topo_node_free(node);
    return own;
}

/* The first CPU that it may use then. */
static int first_of_rank_0(const int *gpus)
{
    int first = 0;
    pthread_t thread;
    void *own;

    assert_int_equal(pthread_create(&thread, NULL, be_first, (void *)(uintptr_t)gpus), 0);
    pthread_join(thread, &own);
    while (!CPU_ISSET((size_t)first, (cpu_set_t *)own))
        first++;
    free(own);
    return first;
}

static void a_rank_has_the_cores_near_the_gpu_that_it_will_take(void **state)
{
    struct topo_node *node = here();

    (void)state;
    if (node->n_usable < 2)
        skip();
    setenv("TASUKI_BIND", "1 cores", 1);
    setenv("SLURM_LOCALID", "0", 1);
    assert_int_equal(first_of_rank_0(NULL), node->usable[0]);
    assert_int_equal(first_of_rank_0((const int[]){ 1, 0 }), node->usable[node->n_usable / 2]);
    unsetenv("TASUKI_BIND");
    unsetenv("SLURM_LOCALID");
    topo_node_free(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_thread_has_a_share_of_its_own),
        cmocka_unit_test(more_threads_than_a_share_has_may_use_all),
        cmocka_unit_test(what_openmp_is_told_stays),
        cmocka_unit_test(a_rank_has_the_cores_near_the_gpu_that_it_will_take),
    };

    unsetenv("OMP_PROC_BIND");
    unsetenv("OMP_PLACES");
    unsetenv("GOMP_CPU_AFFINITY");
    unsetenv("KMP_AFFINITY");
    unsetenv("SLURM_CPUS_ON_NODE");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
