/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "topology/node_read.h"

/* GPUs 1 to 3 of four are shown by the driver; GPU 3 has two partitions. */
static struct topo_node *with(const char *variables)
{
    static const char *const uuids[] = { "", "GPU-aa11", "GPU-aa22", "GPU-bb33" };
    struct topo_input input = { .variables = variables };
    struct topo_node *node = topo_node_new();
    struct err err = { 0 };

    for (int i = 0; i < 4; i++) {
        char address[32];
        struct topo_gpu *gpu;

        snprintf(address, sizeof(address), "0000:%d0:00.0", i + 1);
        gpu = topo_node_add_gpu(node, address);
        topo_node_set_text(&gpu->uuid, uuids[i]);
        topo_node_set_text(&gpu->name, i ? "seen" : "hidden");
        gpu->seen = i > 0;
    }
    topo_gpu_add_mig(&node->gpus[3], "MIG-1");
    topo_gpu_add_mig(&node->gpus[3], "MIG-2");
    assert_int_equal(topo_source_visible.read(node, &input, &err), 0);
    return node;
}

static void expect(const char *variables, int n, int first, const char *note)
{
    struct topo_node *node = with(variables);
    bool found = !note;

    for (int i = 0; i < node->n_notes && note; i++)
        found |= strstr(node->notes[i], note) != NULL;
    if (!found || node->n_visible != n || (n > 0 && node->visible[0] != first)) {
        for (int i = 0; i < node->n_notes; i++)
            printf("# %s\n", node->notes[i]);
        fail_msg("%s: %d GPUs, expected %d, and the note %s", variables, node->n_visible, n,
                 note ? note : "");
    }
    topo_node_free(node);
}

static void without_a_list_nothing_is_limited(void **state)
{
    (void)state;
    expect("PATH=/bin", -1, 0, NULL);
}

static void numbers_count_what_the_driver_shows(void **state)
{
    (void)state;
    expect("CUDA_VISIBLE_DEVICES=0", 1, 1, "sees 1 of 4");
    expect("CUDA_VISIBLE_DEVICES=2,0", 2, 3, NULL);
    expect("CUDA_VISIBLE_DEVICES=", 0, 0, "sees 0 of 4");
}

static void the_list_ends_where_it_names_nothing(void **state)
{
    (void)state;
    expect("CUDA_VISIBLE_DEVICES=1,3,0", 1, 2, "no GPU \"3\"");
    expect("CUDA_VISIBLE_DEVICES=0,-1,1", 1, 1, NULL);
    expect("CUDA_VISIBLE_DEVICES=NoDevFiles", 0, 0, "no GPU");
}

static void a_gpu_that_is_named_twice_leaves_none(void **state)
{
    (void)state;
    expect("CUDA_VISIBLE_DEVICES=0,1,0", 0, 0, "twice");
}

static void uuids_may_be_cut_short_where_they_stay_unique(void **state)
{
    (void)state;
    expect("CUDA_VISIBLE_DEVICES=GPU-aa22", 1, 2, NULL);
    expect("CUDA_VISIBLE_DEVICES=GPU-b", 1, 3, NULL);
    expect("CUDA_VISIBLE_DEVICES=GPU-a", 0, 0, "several GPUs");
}

static void partitions_are_kept_by_their_names(void **state)
{
    struct topo_node *node = with("CUDA_VISIBLE_DEVICES=MIG-2,MIG-1");

    (void)state;
    assert_int_equal(node->n_partitions, 2);
    assert_string_equal(node->partitions[0], "MIG-2");
    assert_string_equal(node->partitions[1], "MIG-1");
    topo_node_free(node);
}

static void partitions_stand_for_their_gpu(void **state)
{
    (void)state;
    expect("CUDA_VISIBLE_DEVICES=MIG-2", 1, 3, NULL);
    expect("CUDA_VISIBLE_DEVICES=MIG-1,MIG-2", 1, 3, NULL);
    expect("CUDA_VISIBLE_DEVICES=MIG-9", 0, 0, "no GPU \"MIG-9\"");
}

static void slurms_numbers_are_explained(void **state)
{
    (void)state;
    expect("SLURM_STEP_GPUS=1-3", -1, 0, "control group shows");
    expect("SLURM_JOB_GPUS=0,2", -1, 0, "not confined");
    expect("SLURM_STEP_GPUS=0-3\nSLURM_JOB_GPUS=0", -1, 0, "the driver shows 3 of the 4 GPUs that Slurm gave");
    expect("SLURM_STEP_GPUS=gpu", -1, 0, "not a list");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_list_nothing_is_limited),
        cmocka_unit_test(numbers_count_what_the_driver_shows),
        cmocka_unit_test(the_list_ends_where_it_names_nothing),
        cmocka_unit_test(a_gpu_that_is_named_twice_leaves_none),
        cmocka_unit_test(uuids_may_be_cut_short_where_they_stay_unique),
        cmocka_unit_test(partitions_are_kept_by_their_names),
        cmocka_unit_test(partitions_stand_for_their_gpu),
        cmocka_unit_test(slurms_numbers_are_explained),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
