/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/mem.h"
#include "topology/given.h"
#include "topology/node_read.h"

#define GPUS 4

static char *proc;

static int remove_proc(void **state)
{
    (void)state;
    return unit_remove(proc);
}

static void add_minor(const char *address, int minor)
{
    char *command = mem_printf("mkdir -p %s/driver/nvidia/gpus/%s && printf 'Model: \\t X\\n"
                               "Device Minor: \\t %d\\n' >%s/driver/nvidia/gpus/%s/information",
                               proc, address, minor, proc, address);

    assert_int_equal(system(command), 0);
    free(command);
}

static int make_proc(void **state)
{
    (void)state;
    proc = unit_directory();
    add_minor("0000:10:00.0", 0);
    add_minor("0000:30:00.0", 1);
    add_minor("0000:40:00.0", 2);
    add_minor("0000:50:00.0", 3);
    return 0;
}

/* Four GPUs of NVIDIA's, all shown, between which a card for a display has a place, too. */
static struct topo_node *make_node(void)
{
    struct topo_node *node = topo_node_new();

    for (int i = 0; i <= GPUS; i++) {
        char address[32];
        struct topo_pci *pci;

        snprintf(address, sizeof(address), "0000:%d0:00.0", i + 1);
        topo_node_add_gpu(node, address)->seen = i != 1;
        pci = topo_node_add_pci(node, TOPO_PCI_DEVICE, address);
        pci->vendor = i == 1 ? 0x1a03 : 0x10de;
    }
    return node;
}

/* "SLURM_STEP_GPUS 0 2": what is given, of the GPUs of 'node', which is freed; "" where it cannot be
 * told.
 */
static void expect(struct topo_node *node, const char *variables, const char *expected)
{
    struct topo_input input = { .variables = variables, .proc = proc };
    struct topo_given given = topo_given_gpus(node, &input);
    char *text = mem_strdup(given.name ? given.name : "");

    for (int i = 0; given.name && i < given.n; i++) {
        char *more = mem_printf("%s %d", text, given.gpus[i]);

        free(text);
        text = more;
    }
    assert_string_equal(text, expected);
    free(text);
    topo_given_clear(&given);
    topo_node_free(node);
}

static void numbers_count_the_gpus_of_the_node(void **state)
{
    (void)state;
    expect(make_node(), "SLURM_STEP_GPUS=0,2-3", "SLURM_STEP_GPUS 0 3 4");
    expect(make_node(), "SLURM_STEP_GPUS=1\nSLURM_JOB_GPUS=0", "SLURM_STEP_GPUS 2");
    expect(make_node(), "PATH=/bin", "");
}

static void a_jobs_list_is_that_of_scripts_and_shells(void **state)
{
    (void)state;
    expect(make_node(), "SLURM_JOB_GPUS=1", "SLURM_JOB_GPUS 2");
    expect(make_node(), "SLURM_JOB_GPUS=1\nSLURM_STEP_ID=4294967290", "SLURM_JOB_GPUS 2");
    expect(make_node(), "SLURM_JOB_GPUS=1\nSLURM_STEP_ID=0", "");
}

static void where_devices_are_confined_nothing_is_told(void **state)
{
    struct topo_node *node = make_node();

    (void)state;
    expect(make_node(), "SLURM_STEP_GPUS=0-3", "");
    node->gpus[3].seen = false;
    expect(node, "SLURM_STEP_GPUS=1", "");
}

static void what_is_no_list_of_these_gpus_tells_nothing(void **state)
{
    (void)state;
    expect(make_node(), "SLURM_STEP_GPUS=4", "");
    expect(make_node(), "SLURM_STEP_GPUS=", "");
    expect(make_node(), "SLURM_STEP_GPUS=GPU-1", "");
}

static void partitions_are_not_whole_gpus(void **state)
{
    struct topo_node *node = make_node();

    (void)state;
    node->gpus[0].mig = 1;
    expect(node, "SLURM_STEP_GPUS=1", "");
}

static void device_files_in_another_order_or_not_known_tell_nothing(void **state)
{
    char *command = mem_printf("rm %s/driver/nvidia/gpus/0000:50:00.0/information", proc);

    (void)state;
    assert_int_equal(system(command), 0);
    free(command);
    expect(make_node(), "SLURM_STEP_GPUS=1", "");
    add_minor("0000:50:00.0", 2);
    add_minor("0000:40:00.0", 3);
    expect(make_node(), "SLURM_STEP_GPUS=1", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_count_the_gpus_of_the_node),
        cmocka_unit_test(a_jobs_list_is_that_of_scripts_and_shells),
        cmocka_unit_test(where_devices_are_confined_nothing_is_told),
        cmocka_unit_test(what_is_no_list_of_these_gpus_tells_nothing),
        cmocka_unit_test(partitions_are_not_whole_gpus),
        cmocka_unit_test(device_files_in_another_order_or_not_known_tell_nothing),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_proc, remove_proc);
}
