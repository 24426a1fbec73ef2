/* SPDX-License-Identifier: MIT */
#include "planning.h"

#include <math.h>

#include "base/mem.h"
#include "scheduler/partition_private.h"
#include "scheduler/simulate_private.h"

#define CLOSE 1e-9

static struct plan *make_plan(const struct cost *cost, const struct cluster *cluster,
                              int n_stages, const int *cuts, const int *replicas, int64_t micro,
                              int64_t count, enum schedule_kind schedule)
{
    struct plan_request request = { .global_batch = micro * count };
    struct candidate c = { .n_stages = n_stages, .cuts = (int *)cuts,
                           .replicas = (int *)replicas, .micro_batch = micro,
                           .micro_batches = count, .schedule = schedule };

    if (schedule_chunks(schedule, 2) > 1)
        c.chunks = 2;
    return place(cost, cluster, &request, &c);
}

static double seconds(const struct cost *cost, const char *spec, int n_stages, const int *cuts,
                      const int *replicas, int64_t micro, int64_t count,
                      enum schedule_kind schedule)
{
    struct err err = { 0 };
    struct cluster *cluster = cluster_open(spec, &err);
    struct plan *plan;
    double result;

    if (!cluster)
        fail_msg("%s", err.text);
    plan = make_plan(cost, cluster, n_stages, cuts, replicas, micro, count, schedule);
    result = simulate_seconds(plan, cost, cluster, &err);
    if (result < 0)
        fail_msg("%s", err.text);
    plan_free(plan);
    cluster_free(cluster);
    return result;
}

#define FREE_WIRES "flat:4,bandwidth=1e30,latency=0,memory=1e30"

static void one_stage_runs_one_micro_batch_after_the_other(void **state)
{
    struct cost *cost = even_cost(4, 0, 0);

    (void)state;
    assert_true(fabs(seconds(cost, FREE_WIRES, 1, (int[]){ 0, 4 }, (int[]){ 1 }, 1, 5,
                             SCHEDULE_1F1B) - 5 * 12) < CLOSE);
    cost_free(cost);
}

static void an_even_pipeline_takes_what_the_formula_says(void **state)
{
    struct cost *cost = even_cost(4, 0, 0);
    const int cuts[] = { 0, 1, 2, 3, 4 }, ones[] = { 1, 1, 1, 1 };
    const double m = 8, s = 4;

    (void)state;
    for (int k = SCHEDULE_1F1B; k <= SCHEDULE_GPIPE; k++) {
        double t = seconds(cost, FREE_WIRES, 4, cuts, ones, 1, 8, (enum schedule_kind)k);

        /* M times F, B and W, and the way of one sample there and back: no B waits for the W
         * of the stage behind, else it would be (M + S - 1) times F, B and W.
         */
        assert_true(fabs(t - (3 * m + 2 * (s - 1))) < CLOSE);
    }
    /* On the way back the stages run W that they have put off. */
    assert_true(fabs(seconds(cost, FREE_WIRES, 4, cuts, ones, 1, 8, SCHEDULE_ZB_H1) -
                     (3 * m + s - 1)) < CLOSE);
    cost_free(cost);
}

/* Without a flush nothing is left of an iteration but the work of the slowest stage. */
static void an_unflushed_pipeline_has_no_bubble(void **state)
{
    struct cost *even = even_cost(4, 0, 0);
    const int cuts[] = { 0, 1, 2, 3, 4 }, ones[] = { 1, 1, 1, 1 };

    (void)state;
    for (int m = 4; m <= 16; m++) {
        assert_true(fabs(seconds(even, FREE_WIRES, 4, cuts, ones, 1, m, SCHEDULE_2BW) - 3 * m) <
                    CLOSE * m);
        /* Two of four blocks are in the first stage, in the second, in the last. */
        for (int s = 0; s < 3; s++) {
            const int two[] = { 0, 1 + (s == 0), 2 + (s < 2), 4 };

            assert_true(fabs(seconds(even, FREE_WIRES, 3, two, ones, 1, m, SCHEDULE_2BW) -
                             6 * m) < CLOSE * m);
        }
    }
    cost_free(even);
}

/* A stage waits for its own gradients, and then goes on: F, B and W of two blocks take 6 for a
 * sample, and the sums 4 for each block, of which one can begin while the last W, of 1, runs.
 */
static void an_unflushed_stage_waits_for_its_sums(void **state)
{
    struct cost *cost = even_cost(4, 0, 400000);
    const char *spec = "flat:4,bandwidth=1e5,latency=0,memory=1e30";
    const int cuts[] = { 0, 2, 4 }, replicas[] = { 2, 2 };
    double plain = seconds(cost, spec, 2, cuts, replicas, 2, 8, SCHEDULE_1F1B);
    double late = seconds(cost, spec, 2, cuts, replicas, 2, 8, SCHEDULE_2BW);

    (void)state;
    assert_true(fabs(late - (8 * 6 + 2 * 4 - 1)) < CLOSE);
    assert_true(late < plain);
    cost_free(cost);
}

static void chunks_of_a_device_take_turns(void **state)
{
    struct cost *cost = even_cost(8, 0, 0);
    const int cuts[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8 }, ones[] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    const double m = 8, p = 4;
    double v, interleaved;

    (void)state;
    /* Two blocks of a device take 6 for each micro-batch. A V is never idle between; before its
     * first F the last device waits for the others, as the first does after its last W.
     */
    v = seconds(cost, FREE_WIRES, 8, cuts, ones, 1, 8, SCHEDULE_ZB_V);
    assert_true(v >= 6 * m && v <= 6 * m + p - 1 + CLOSE);
    interleaved = seconds(cost, FREE_WIRES, 8, cuts, ones, 1, 8, SCHEDULE_INTERLEAVED);
    assert_true(interleaved > 6 * m && interleaved <= 6 * m + (p - 1) * 6 / 2 + CLOSE);
    cost_free(cost);
}

/* The V turns on the last device: its two stages exchange without a wire. */
static void messages_between_chunks_of_a_device_cost_nothing(void **state)
{
    struct cost *cost = even_cost(4, 1000, 0);
    const int cuts[] = { 0, 1, 2, 3, 4 }, ones[] = { 1, 1, 1, 1 };
    const char *spec = "flat:2,bandwidth=500,latency=0.25,memory=1e30";

    (void)state;
    /* F of four stages, B of three, W of the one before the turn, BW of the first: messages
     * between stages 0 and 1 and between 2 and 3, there and back.
     */
    assert_true(fabs(seconds(cost, spec, 4, cuts, ones, 1, 1, SCHEDULE_ZB_V) -
                     (4 + 3 + 1 + 2 + 4 * 2.25)) < CLOSE);
    cost_free(cost);
}

static void messages_take_latency_and_bytes_over_bandwidth(void **state)
{
    struct cost *cost = even_cost(2, 1000, 0);
    const int cuts[] = { 0, 1, 2 }, ones[] = { 1, 1 };
    const char *spec = "flat:2,bandwidth=500,latency=0.25,memory=1e30";

    (void)state;
    /* F, message, F, B, message, B and W of the first stage. */
    assert_true(fabs(seconds(cost, spec, 2, cuts, ones, 1, 1, SCHEDULE_GPIPE) -
                     (1 + 2.25 + 1 + 1 + 2.25 + 2)) < CLOSE);
    cost_free(cost);
}

static void messages_that_share_a_wire_share_its_bandwidth(void **state)
{
    struct cost *cost = even_cost(2, 1000, 0);
    const int cuts[] = { 0, 1, 2 };
    const char *spec = "flat:3,bandwidth=500,latency=0,memory=1e30";

    (void)state;
    /* The first stage sends each of two replicas half of two samples over its one wire. */
    assert_true(fabs(seconds(cost, spec, 2, cuts, (int[]){ 1, 2 }, 2, 1, SCHEDULE_GPIPE) -
                     (2 + 4 + 1 + 1 + 4 + 4)) < CLOSE);
    cost_free(cost);
}

/* A stage on each of two nodes, as many replicas as a node has devices, one sample each. */
static double between_nodes(int devices, double flow_bandwidth, struct cluster_eager eager)
{
    struct cost *cost = even_cost(2, 1000, 0);
    char spec[64];
    struct cluster *cluster;
    struct plan *plan;
    double result;

    snprintf(spec, sizeof(spec), "tree:2x%d,inside=1e30,across=1000,memory=1e30", devices);
    cluster = cluster_open(spec, NULL);
    assert_non_null(cluster);
    cluster->places[0].eager = eager;
    for (int p = 0; p < cluster->n_places; p++)
        if (cluster->places[p].kind == CLUSTER_NODE)
            cluster->places[p].flow_bandwidth = flow_bandwidth;
    plan = make_plan(cost, cluster, 2, (int[]){ 0, 1, 2 }, (int[]){ devices, devices }, devices,
                     1, SCHEDULE_GPIPE);
    result = simulate_seconds(plan, cost, cluster, NULL);
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
    return result;
}

static void one_message_takes_one_rail_and_several_take_all(void **state)
{
    const struct cluster_eager none = { .copy_bandwidth = INFINITY };
    const double computing = 1 + 1 + 1 + 2;

    (void)state;
    assert_true(fabs(between_nodes(1, INFINITY, none) - (computing + 2 * 1)) < CLOSE);
    assert_true(fabs(between_nodes(1, 500, none) - (computing + 2 * 2)) < CLOSE);
    assert_true(fabs(between_nodes(2, 500, none) - (computing + 2 * 2)) < CLOSE);
    assert_true(fabs(between_nodes(2, 800, none) - (computing + 2 * 2)) < CLOSE);
    assert_true(fabs(between_nodes(4, 500, none) - (computing + 2 * 4)) < CLOSE);
}

static void short_messages_start_sooner_and_are_copied(void **state)
{
    const double computing = 1 + 1 + 1 + 2;

    (void)state;
    assert_true(fabs(between_nodes(1, INFINITY, (struct cluster_eager){ 1000, 0.25, 2000 }) -
                     (computing + 2 * (0.25 + 0.5 + 1))) < CLOSE);
    assert_true(fabs(between_nodes(1, INFINITY, (struct cluster_eager){ 999, 0.25, 2000 }) -
                     (computing + 2 * 1)) < CLOSE);
}

static void replicas_share_samples_and_reduce_gradients(void **state)
{
    struct cost *cost = even_cost(1, 0, 1000);
    const char *spec = "flat:2,bandwidth=500,latency=0,memory=1e30";

    (void)state;
    /* A ring over two: 2 (n-1)/n of 1000 bytes. */
    assert_true(fabs(seconds(cost, spec, 1, (int[]){ 0, 1 }, (int[]){ 2 }, 4, 1,
                             SCHEDULE_GPIPE) -
                     (2 * 3 + 2)) < CLOSE);
    cost_free(cost);
}

/* One block on 8 devices of 4 nodes, as so many pipelines. */
static double reduced_on(struct cluster *cluster, const struct cost *cost, int pipelines)
{
    struct plan_request request = { .global_batch = 8 };
    struct candidate c = { .pipelines = pipelines, .n_stages = 1, .cuts = (int[]){ 0, 1 },
                           .replicas = (int[]){ 8 / pipelines }, .micro_batch = 8 / pipelines,
                           .micro_batches = 1, .schedule = SCHEDULE_GPIPE };
    struct plan *plan = place(cost, cluster, &request, &c);
    double result = simulate_seconds(plan, cost, cluster, NULL);

    assert_true(simulate_copies(plan, cluster) == pipelines);
    plan_free(plan);
    return result - 3;      /* of F, B and W */
}

/* Whatever it is, and where pipelines that are alike are simulated as one, too. */
static void an_idle_cluster_takes_the_closed_form_of_its_all_reduce(void **state)
{
    struct cluster *cluster = cluster_open("tree:4x2,inside=3e3,across=1e3,latency=0.01,"
                                           "inside-latency=0.002", NULL);
    const int all[] = { 0, 1, 2, 3, 4, 5, 6, 7 };

    (void)state;
    assert_non_null(cluster);
    cluster->sum_latency_factor = 1.5;
    cluster->sum_bandwidth_factor = 2;
    for (int kind = 0; kind <= ALLREDUCE_BEST; kind++)
        for (double bytes = 1; bytes < 1e6; bytes *= 10) {
            struct cost *cost = even_cost(1, 0, bytes);

            cluster->sum_algorithm = (enum allreduce)kind;
            for (int pipelines = 1; pipelines <= 4; pipelines *= 2) {
                double closed = cluster_allreduce_time(cluster, 8, all, bytes);

                assert_true(fabs(reduced_on(cluster, cost, pipelines) - closed) <
                            CLOSE * (3 + closed));
            }
            cost_free(cost);
        }
    cluster_free(cluster);
}

static void reduction_overlaps_the_last_backward(void **state)
{
    struct cost *cost = even_cost(2, 0, 100000);
    const char *spec = "flat:2,bandwidth=50000,latency=0,memory=1e30";

    (void)state;
    /* The last block's gradients move while the first block is still at work. */
    assert_true(fabs(seconds(cost, spec, 1, (int[]){ 0, 2 }, (int[]){ 2 }, 2, 1,
                             SCHEDULE_GPIPE) -
                     (2 + 4 + 2)) < CLOSE);
    cost_free(cost);
}

/* Eight blocks, F and BW of each 1 and 2 seconds, two replicas. What is not larger than a bucket
 * is reduced at once, when the last block is done; else each quarter on its own, all but the last
 * of them while others are computed.
 */
static void gradients_are_reduced_in_buckets(void **state)
{
    const char *spec = "flat:2,bandwidth=1e6,latency=0.25,memory=1e30";

    (void)state;
    for (int large = 0; large < 2; large++) {
        double bytes = large ? 1e5 : 2e3, all = 8 * bytes;
        double last = large ? all / 4 : all;
        struct cost *cost = even_cost(8, 0, bytes);
        double took = seconds(cost, spec, 1, (int[]){ 0, 8 }, (int[]){ 2 }, 2, 1,
                              SCHEDULE_GPIPE);

        assert_true(fabs(took - (8 * 3 + 2 * 0.25 + last / 1e6)) < CLOSE);
        cost_free(cost);
    }
}

/* ZeRO-1: where nothing is trained, nothing is gathered after the step. */
static void replicas_without_parameters_gather_nothing(void **state)
{
    struct err err = { 0 };
    struct cluster *cluster =
        cluster_open("flat:2,bandwidth=1e6,latency=0.25,memory=1e30", &err);
    struct cost *cost = even_cost(2, 0, 0);
    struct plan *plan;

    (void)state;
    assert_non_null(cluster);
    plan = make_plan(cost, cluster, 1, (int[]){ 0, 2 }, (int[]){ 2 }, 2, 1, SCHEDULE_GPIPE);
    plan->zero = true;
    assert_true(fabs(simulate_seconds(plan, cost, cluster, &err) - 2 * 3) < CLOSE);
    plan_free(plan);
    cost_free(cost);
    cluster_free(cluster);
}

static void who_computes_beside_its_reduction_is_slowed_down(void **state)
{
    const double overlaps[] = { 1, 0.5, 0 };
    struct cost *cost = even_cost(2, 0, 100000);
    struct cluster *cluster = cluster_open("flat:2,bandwidth=50000,latency=0,memory=1e30", NULL);
    struct plan *plan;

    (void)state;
    assert_non_null(cluster);
    plan = make_plan(cost, cluster, 1, (int[]){ 0, 2 }, (int[]){ 2 }, 2, 1, SCHEDULE_GPIPE);
    for (int i = 0; i < 3; i++) {
        const struct plan_stage *stage = &plan->stages[0];

        cluster->sum_overlap = overlaps[i];
        assert_int_equal(simulate_forecast(plan, cost, cluster, NULL), 0);
        /* The first block's backward takes as long as the second block's reduction. */
        assert_true(fabs(plan->iteration_seconds - (8 + 2 * (1 - overlaps[i]))) < CLOSE);
        assert_true(fabs(stage->busy - (6 + 2 * (1 - overlaps[i]))) < CLOSE);
        assert_true(fabs(stage->reducing - 2) < CLOSE);
        assert_true(fabs(stage->idle) < CLOSE);
    }
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
}

/* A node of as many cores as wished; each device runs one thread. */
static struct cluster *cluster_of_node(int devices, int cores)
{
    char spec[64];
    struct cluster *cluster;

    snprintf(spec, sizeof(spec), "flat:%d,bandwidth=1e30,latency=0,memory=1e30", devices);
    cluster = cluster_open(spec, NULL);
    assert_non_null(cluster);
    cluster->places[0].cores = cores;
    for (int d = 0; d < devices; d++)
        cluster->devices[d].cores = 1;
    return cluster;
}

static void more_threads_than_cores_slow_each_other_down(void **state)
{
    struct cost *cost = even_cost(1, 0, 0);

    (void)state;
    for (int cores = 1; cores <= 4; cores++) {
        struct cluster *cluster = cluster_of_node(4, cores);
        struct plan *plan = make_plan(cost, cluster, 1, (int[]){ 0, 1 }, (int[]){ 4 }, 8, 3,
                                      false);

        assert_true(fabs(simulate_seconds(plan, cost, cluster, NULL) - 3 * 6 * 4.0 / cores) <
                    CLOSE);
        plan_free(plan);
        cluster_free(cluster);
    }
    cost_free(cost);
}

static void waiting_stages_leave_their_cores_to_others(void **state)
{
    struct cost *cost = even_cost(2, 0, 0);
    struct cluster *cluster = cluster_of_node(2, 1);
    struct plan *plan = make_plan(cost, cluster, 2, (int[]){ 0, 1, 2 }, (int[]){ 1, 1 }, 1, 6,
                                  false);

    (void)state;
    /* One core does all the work and is never idle. */
    assert_true(fabs(simulate_seconds(plan, cost, cluster, NULL) - 6 * 6) < CLOSE);
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
}

static void events_say_who_does_what_when(void **state)
{
    struct cost *cost = even_cost(3, 100, 100);
    struct cluster *cluster = cluster_open("flat:3,bandwidth=1e3,latency=0,memory=1e30", NULL);
    struct plan *plan = make_plan(cost, cluster, 3, (int[]){ 0, 1, 2, 3 }, (int[]){ 1, 1, 1 }, 1,
                                  4, SCHEDULE_1F1B);
    struct simulation *sim = simulate(plan, cost, cluster, NULL, NULL);
    double busy[3] = { 0 };
    int forwards = 0;

    (void)state;
    assert_non_null(sim);
    for (int i = 0; i < sim->n_events; i++) {
        const struct simulated_event *e = &sim->events[i];

        assert_true(e->start <= e->end && e->end <= sim->iteration_seconds);
        assert_true(i == 0 || sim->events[i - 1].start <= e->start);
        forwards += e->instruction.kind == INSTRUCTION_F;
        if (e->instruction.kind <= INSTRUCTION_BW)
            busy[e->stage] += e->end - e->start;
    }
    assert_int_equal(forwards, 12);
    for (int s = 0; s < 3; s++)
        assert_true(fabs(busy[s] - sim->busy[s]) < CLOSE);
    assert_true(fabs(simulate_seconds(plan, cost, cluster, NULL) - sim->iteration_seconds) <
                CLOSE);
    simulation_free(sim);
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
}

static const struct simulated_event *forward(const struct simulation *sim, int stage, int micro)
{
    for (int i = 0; i < sim->n_events; i++) {
        const struct simulated_event *e = &sim->events[i];

        if (e->stage == stage && e->instruction.kind == INSTRUCTION_F &&
            e->instruction.micro == micro)
            return e;
    }
    fail_msg("no F of micro-batch %d on stage %d", micro, stage);
    return NULL;
}

/* A message takes 1 s, as F does: of the second F of the sender so much is left when it has arrived as the
 * overlap is less than 1. At 0.5 the second message moves while the receiver has half of its first F left.
 */
static void who_computes_beside_its_messages_is_slowed_down(void **state)
{
    const double overlaps[] = { 1, 0.5, 0 }, sender[] = { 2, 2.5, 3 }, receiver[] = { 3, 3.5, 3 };
    struct cost *cost = even_cost(2, 1000, 0);
    struct cluster *cluster = cluster_open("flat:2,bandwidth=1e3,latency=0,memory=1e30", NULL);
    struct plan *plan = make_plan(cost, cluster, 2, (int[]){ 0, 1, 2 }, (int[]){ 1, 1 }, 1, 2,
                                  SCHEDULE_GPIPE);

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct simulation *sim;

        cluster->send_overlap = cluster->receive_overlap = overlaps[i];
        sim = simulate(plan, cost, cluster, NULL, NULL);
        assert_non_null(sim);
        assert_true(fabs(forward(sim, 0, 1)->end - sender[i]) < CLOSE);
        assert_true(fabs(forward(sim, 1, 0)->end - receiver[i]) < CLOSE);
        simulation_free(sim);
    }
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
}

/* The second stage, F of which takes 3, asks for a message when it starts on the one before it: the
 * first, F of which takes 1, may send the one of micro-batch m when that of m - 2 is there.
 */
static void a_stage_waits_where_two_messages_are_not_received(void **state)
{
    struct cost *cost = even_cost(4, 0, 0);
    struct cluster *cluster = cluster_open(FREE_WIRES, NULL);
    struct plan *plan = make_plan(cost, cluster, 2, (int[]){ 0, 1, 4 }, (int[]){ 1, 1 }, 1, 8,
                                  SCHEDULE_GPIPE);
    struct simulation *sim = simulate(plan, cost, cluster, NULL, NULL);

    (void)state;
    for (int m = 0; m < 8; m++) {
        double asked = m < 4 ? 0 : 1 + 3 * (m - 4);

        assert_true(fabs(forward(sim, 0, m)->start - fmax(m, asked)) < CLOSE);
        assert_true(fabs(forward(sim, 1, m)->start - (1 + 3 * m)) < CLOSE);
    }
    simulation_free(sim);
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
}

/* What is drawn is as long as an iteration, and holds one of each computation. */
static void events_of_an_unflushed_pipeline_are_those_of_one_iteration(void **state)
{
    struct cost *cost = even_cost(3, 0, 100);
    struct cluster *cluster = cluster_open("flat:3,bandwidth=1e30,latency=0,memory=1e30", NULL);
    struct plan *plan = make_plan(cost, cluster, 3, (int[]){ 0, 1, 2, 3 },
                                  (int[]){ 1, 1, 1 }, 1, 4, SCHEDULE_2BW);
    struct simulation *sim = simulate(plan, cost, cluster, NULL, NULL);
    double busy[3] = { 0 };

    (void)state;
    assert_non_null(sim);
    assert_true(fabs(sim->iteration_seconds - 12) < CLOSE);
    for (int i = 0; i < sim->n_events; i++) {
        const struct simulated_event *e = &sim->events[i];

        assert_true(0 <= e->start && e->start <= e->end && e->end <= 12 + CLOSE);
        assert_true(e->instruction.micro >= 0 && e->instruction.micro < 4);
        if (e->instruction.kind <= INSTRUCTION_BW)
            busy[e->stage] += e->end - e->start;
    }
    for (int s = 0; s < 3; s++)
        assert_true(fabs(busy[s] - 12) < CLOSE && fabs(sim->busy[s] - 12) < CLOSE);
    assert_int_equal(sim->schedule->versions, 2);
    assert_int_equal(sim->schedule->micro_batches, 4);
    simulation_free(sim);
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
}

/* Whatever the network, the plan and the wires: it ends, and not before its work is done. */
static void random_plans_come_to_an_end(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 60; seed++) {
        unsigned r = seed;
        struct cost *cost = random_cost(6, seed);
        struct cluster *cluster =
            cluster_open("tree:3x4,inside=1e8,across=1e7,memory=1e30", NULL);
        int n = 1 + (int)(next_random(&r) % 4), cuts[] = { 0, 1, 2, 4, 6 }, replicas[4];
        struct plan *plan;
        struct err err = { 0 };
        double t, work = 0;

        cuts[n] = 6;
        for (int s = 0; s < n; s++)
            replicas[s] = 1 + (int)(next_random(&r) % 3);
        plan = make_plan(cost, cluster, n, cuts, replicas, 3 + next_random(&r) % 3,
                         1 + next_random(&r) % 6, next_random(&r) % 2);
        t = simulate_seconds(plan, cost, cluster, &err);
        if (t < 0)
            fail_msg("seed %u: %s", seed, err.text);
        for (int s = 0; s < n; s++)
            work = fmax(work, (plan->stages[s].forward + plan->stages[s].dgrad +
                               plan->stages[s].wgrad) * (double)plan->micro_batches);
        if (t < work * (1 - CLOSE))
            fail_msg("seed %u: %g < %g", seed, t, work);
        plan_free(plan);
        cluster_free(cluster);
        cost_free(cost);
    }
}

/* What a forecast says of the stages is the mean over all their workers. */
static void assert_means(const struct plan *plan, const struct simulation *all, unsigned seed)
{
    int worker = 0;

    for (int p = 0; p < plan->pipelines; p++)
        for (int s = 0; s < plan->n_stages; s++)
            for (int r = 0; r < plan->stages[s].replicas; r++, worker++) {
                double copies = plan->pipelines * plan->stages[s].replicas;

                plan->stages[s].busy -= all->busy[worker] / copies;
                plan->stages[s].reducing -= all->reducing[worker] / copies;
            }
    assert_int_equal(worker, all->n_workers);
    for (int s = 0; s < plan->n_stages; s++)
        if (fabs(plan->stages[s].busy) + fabs(plan->stages[s].reducing) >
            CLOSE * all->iteration_seconds)
            fail_msg("seed %u: stage %d is off by %g and %g s", seed, s, plan->stages[s].busy,
                     plan->stages[s].reducing);
}

/* One pipeline, or those of one node, stand for all where nothing else lies between them: the same
 * time as of all.
 */
static void pipelines_that_are_alike_take_as_long_as_one(void **state)
{
    static const char *const clusters[] = {
        "tree:4x2,inside=1e8,across=1e7,latency=1e-6,memory=1e30",
        "tree:4x3,inside=1e8,across=1e7,memory=1e30",
        "tree:2x8,inside=1e8,across=1e7,memory=1e30",
        "flat:8,bandwidth=1e7,latency=1e-5,memory=1e30",
        "tree:3x4,inside=1e8,across=1e7,memory=1e30",
    };
    int shortened = 0, in_groups = 0;

    (void)state;
    for (unsigned seed = 1; seed <= 80; seed++) {
        struct cost *cost = random_cost(6, seed);
        struct cluster *cluster = cluster_open(clusters[seed % 5], NULL);
        int n = 1 + (int)(seed / 4 % 2), cuts[] = { 0, n > 1 ? 2 : 6, 6 }, replicas[] = { 1, 1 };
        struct plan_request request = { .global_batch = 64 };
        struct candidate c = { .pipelines = seed / 16 % 2 ? 4 : 2, .n_stages = n, .cuts = cuts,
                               .replicas = replicas, .micro_batch = 4, .zero = seed / 8 % 2 };
        struct plan *plan;
        struct simulation *all;
        double one;
        int copies;

        if (seed % 3 == 0 && cluster->n_devices / c.pipelines > n)
            replicas[0] = 2;
        c.micro_batches = 64 / c.pipelines / 4;
        cluster->sum_algorithm = (enum allreduce)(seed / 5 % 4);
        plan = place(cost, cluster, &request, &c);
        copies = simulate_copies(plan, cluster);
        shortened += copies > 1;
        in_groups += copies > 1 && copies < plan->pipelines;
        all = simulate(plan, cost, cluster, NULL, NULL);
        one = simulate_seconds(plan, cost, cluster, NULL);
        if (fabs(one - all->iteration_seconds) > CLOSE * one)
            fail_msg("seed %u: %.17g, not %.17g", seed, one, all->iteration_seconds);
        assert_int_equal(simulate_forecast(plan, cost, cluster, NULL), 0);
        assert_means(plan, all, seed);
        simulation_free(all);
        plan_free(plan);
        cluster_free(cluster);
        cost_free(cost);
    }
    assert_in_range(shortened, 20, 79);
    assert_in_range(in_groups, 5, 79);
}

/* Whatever the schedule: what takes no longer than the limit takes what it takes without one. */
static void a_limit_hides_what_takes_longer_alone(void **state)
{
    int schedules[SCHEDULE_KINDS] = { 0 };

    (void)state;
    for (unsigned seed = 1; seed <= 150; seed++) {
        enum schedule_kind kind = (enum schedule_kind)(seed % SCHEDULE_KINDS);
        int chunks = schedule_chunks(kind, 2), cuts[] = { 0, 1, 3, 4, 6 };
        int replicas[] = { 1, 1, 1, 1 }, n = 2 * chunks;
        enum plan_recompute again[] = { PLAN_RECOMPUTE_NONE, PLAN_RECOMPUTE_FULL,
                                        PLAN_RECOMPUTE_SELECTIVE, PLAN_RECOMPUTE_NONE };
        struct cost *cost = random_cost(6, seed);
        struct cluster *cluster =
            cluster_open("tree:2x4,inside=1e8,across=1e7,latency=1e-6,memory=1e30", NULL);
        struct plan_request request = { .global_batch = 32 };
        struct candidate c = { .pipelines = seed / 16 % 2 ? 2 : 1, .n_stages = n, .cuts = cuts,
                               .replicas = replicas, .micro_batches = seed % 2 ? 4 : 2,
                               .schedule = kind, .chunks = chunks, .zero = seed / 8 % 2,
                               .again = again };
        struct plan *plan;
        double all;

        cuts[n] = 6;
        c.micro_batch = 32 / c.pipelines / c.micro_batches;
        for (int s = 0; s < n && seed % 3 == 0; s++)
            replicas[s] = 2;
        cluster->sum_overlap = seed % 5 ? 1 : 0.5;
        cluster->send_overlap = seed % 7 ? 1 : 0.5;
        plan = place(cost, cluster, &request, &c);
        all = simulate_seconds(plan, cost, cluster, NULL);
        assert_true(all > 0);
        assert_true(simulate_within(all * (1 + CLOSE), plan, cost, cluster, NULL) == all);
        assert_true(simulate_within(2 * all, plan, cost, cluster, NULL) == all);
        schedules[kind]++;
        assert_true(simulate_within(all / 1e6, plan, cost, cluster, NULL) == INFINITY);
        for (int tenths = 1; tenths < 10; tenths++) {
            double seconds = simulate_within(tenths * all / 10, plan, cost, cluster, NULL);

            /* What is not flushed is not cut short. */
            assert_true(seconds == INFINITY || (seconds == all && kind == SCHEDULE_2BW));
        }
        plan_free(plan);
        cluster_free(cluster);
        cost_free(cost);
    }
    for (int k = 0; k < SCHEDULE_KINDS; k++)
        assert_true(schedules[k] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stage_runs_one_micro_batch_after_the_other),
        cmocka_unit_test(an_even_pipeline_takes_what_the_formula_says),
        cmocka_unit_test(an_unflushed_pipeline_has_no_bubble),
        cmocka_unit_test(an_unflushed_stage_waits_for_its_sums),
        cmocka_unit_test(chunks_of_a_device_take_turns),
        cmocka_unit_test(messages_between_chunks_of_a_device_cost_nothing),
        cmocka_unit_test(messages_take_latency_and_bytes_over_bandwidth),
        cmocka_unit_test(messages_that_share_a_wire_share_its_bandwidth),
        cmocka_unit_test(one_message_takes_one_rail_and_several_take_all),
        cmocka_unit_test(short_messages_start_sooner_and_are_copied),
        cmocka_unit_test(replicas_share_samples_and_reduce_gradients),
        cmocka_unit_test(an_idle_cluster_takes_the_closed_form_of_its_all_reduce),
        cmocka_unit_test(reduction_overlaps_the_last_backward),
        cmocka_unit_test(gradients_are_reduced_in_buckets),
        cmocka_unit_test(replicas_without_parameters_gather_nothing),
        cmocka_unit_test(who_computes_beside_its_reduction_is_slowed_down),
        cmocka_unit_test(who_computes_beside_its_messages_is_slowed_down),
        cmocka_unit_test(more_threads_than_cores_slow_each_other_down),
        cmocka_unit_test(waiting_stages_leave_their_cores_to_others),
        cmocka_unit_test(events_say_who_does_what_when),
        cmocka_unit_test(a_stage_waits_where_two_messages_are_not_received),
        cmocka_unit_test(events_of_an_unflushed_pipeline_are_those_of_one_iteration),
        cmocka_unit_test(random_plans_come_to_an_end),
        cmocka_unit_test(pipelines_that_are_alike_take_as_long_as_one),
        cmocka_unit_test(a_limit_hides_what_takes_longer_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
