/* SPDX-License-Identifier: MIT */
/* How many ranks and GPUs of a node, by what Slurm says of a job. */
#include "unit.h"

#include "base/mem.h"
#include "base/option.h"
#include "cmd_plan.h"
#include "cmd_submit.h"
#include "scheduler/slurm/facts.h"

/* Sizes are not compared here. */
struct sizes *plan_sizes(int argc, char **argv, int most, struct err *err)
{
    (void)argc, (void)argv, (void)most, (void)err;
    return NULL;
}

void sizes_reason(const struct sizes *sizes, FILE *out)
{
    (void)sizes, (void)out;
}

/* Two nodes of four GPUs, in these states, of which the job was given some. */
static struct slurm_facts *facts_of(const char *job, const char *first, const char *second,
                                    const char *given)
{
    char *text = mem_printf("{\"version\": \"22.05.8\", \"cluster\": \"lab\", \"topology\": \"\","
                            " \"job\": \"%s\", \"partition\": \"main\", \"nodes\": ["
                            "{\"name\": \"n1\", \"state\": \"%s\", \"gres\": \"gpu:4,shard:16\","
                            " \"given\": \"%s\", \"sockets\": 2, \"cores\": 4, \"threads\": 1},"
                            "{\"name\": \"n2\", \"state\": \"%s\", \"gres\": \"gpu:4,shard:16\","
                            " \"given\": \"%s\", \"sockets\": 2, \"cores\": 4, \"threads\": 1}]}",
                            job, first, given, second, given);
    json_t *json = json_loads(text, 0, NULL);
    struct err err = { 0 };
    struct slurm_facts *facts = slurm_facts_from_json("test", json, &err);

    if (!facts)
        fail_msg("%s", err.text);
    json_decref(json);
    free(text);
    return facts;
}

/* Of the facts, which it frees; 'device' may be NULL. */
static int choose(struct slurm_facts *facts, const char *device, struct submit *job,
                  struct err *err)
{
    char *argv[] = { "train", "m.onnx", "--device", (char *)device, NULL };
    struct options *options = options_parse(COMMAND_TRAIN, device ? 4 : 2, argv, 1, err);
    int bad;

    assert_non_null(options);
    *job = (struct submit){ .options = options, .facts = facts, .partition = "",
                            .on_gpus = device && strcmp(device, "cuda") == 0 };
    bad = submit_choose_tasks(job, err);
    options_free(options);
    slurm_facts_free(facts);
    return bad;
}

static void expect(struct slurm_facts *facts, const char *device, int64_t tasks, int64_t gpus)
{
    struct submit job;
    struct err err = { 0 };

    if (choose(facts, device, &job, &err))
        fail_msg("%s", err.text);
    assert_int_equal(job.tasks, tasks);
    assert_int_equal(job.gpus, gpus);
}

static void a_job_takes_the_gpus_that_it_was_given(void **state)
{
    (void)state;
    expect(facts_of("7", "mixed", "allocated", "gpu:2(IDX:0-1)"), NULL, 2, 2);
    expect(facts_of("7", "mixed", "allocated", "gpu:2(IDX:0-1)"), "cpu", 2, 0);
}

static void a_job_keeps_nodes_that_would_be_given_to_no_other(void **state)
{
    (void)state;
    expect(facts_of("7", "mixed+drain", "allocated+drain", "gpu:3(IDX:0-2)"), NULL, 3, 3);
    expect(facts_of("7", "mixed+maint", "mixed+not_responding", "gpu:3(IDX:0-2)"), "cuda", 3, 3);
    expect(facts_of("7", "down+not_responding", "mixed", "gpu:3(IDX:0-2)"), "cuda", 3, 3);
    expect(facts_of("", "mixed", "mixed+drain", ""), "cuda", 4, 4);
}

static void without_a_node_a_number_of_gpus_is_not_asked_for(void **state)
{
    struct submit job;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(choose(facts_of("7", "down", "down", "gpu:3(IDX:0-2)"), "cuda", &job, &err),
                     0);
    assert_true(job.tasks > 0);
    assert_int_equal(job.gpus, job.tasks);
}

static void gpus_that_a_job_did_not_ask_for_are_an_error(void **state)
{
    struct submit job;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(choose(facts_of("7", "mixed+drain", "mixed", ""), NULL, &job, &err), -1);
    assert_contains(err.text, "job 7: node n1 has 4 GPUs, and not all nodes of the job were given");
}

static void parts_of_gpus_are_left_to_the_ranks(void **state)
{
    (void)state;
    expect(facts_of("7", "mixed", "mixed", "shard:gpu:1(0/4,1/4)"), NULL, 1, 0);
    expect(facts_of("7", "mixed", "mixed", "nic:1,mps:50"), NULL, 1, 0);
    expect(facts_of("7", "mixed", "mixed", "shard:1"), "cuda", 1, 0);
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
    expect(facts_of("7", "mixed", "mixed", ""), NULL, 1, 0);
    expect(facts_of("7", "mixed", "mixed", "gpu:2(IDX:0-1)"), NULL, 2, 2);
    setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles", 1);
    gpus_that_a_job_did_not_ask_for_are_an_error(state);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static int clear(void **state)
{
    (void)state;
    unsetenv("CUDA_VISIBLE_DEVICES");
    /* A machine that was saved says how many devices there are. */
    setenv("XDG_DATA_HOME", "/nonexistent", 1);
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    setenv("XDG_CACHE_HOME", "/nonexistent", 1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_takes_the_gpus_that_it_was_given),
        cmocka_unit_test(a_job_keeps_nodes_that_would_be_given_to_no_other),
        cmocka_unit_test(without_a_node_a_number_of_gpus_is_not_asked_for),
        cmocka_unit_test(gpus_that_a_job_did_not_ask_for_are_an_error),
        cmocka_unit_test(parts_of_gpus_are_left_to_the_ranks),
    };

    return cmocka_run_group_tests(tests, clear, NULL);
}
