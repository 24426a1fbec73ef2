/* SPDX-License-Identifier: MIT */
/* NVML through a library that stands in for it (tests/fake_nvml.c). */
#include "unit.h"

#include "base/mem.h"
#include "topology/node_read.h"
#include "topology/nvml_api.h"

#define GPUS 4

static char *library, *description;

static int find_library(void **state)
{
    const char *build = getenv("builddir");

    (void)state;
    library = mem_printf("%s/tests/.libs/fake_nvml.so", build ? build : ".");
    description = mem_printf("%s/nvml.txt", unit_directory());
    return setenv("TASUKI_FAKE_NVML", description, 1);
}

static int remove_files(void **state)
{
    (void)state;
    unlink(description);
    *strrchr(description, '/') = '\0';
    rmdir(description);
    free(library);
    free(description);
    return 0;
}

/* Four GPUs, each with two links to the next; 'extra' lines are of GPU 'where' (-1: of all). */
static void write_gpus(int where, const char *extra)
{
    FILE *file = fopen(description, "w");

    assert_non_null(file);
    fprintf(file, "driver 550.1\n%s\n", where < 0 ? extra : "");
    for (int i = 0; i < GPUS; i++)
        fprintf(file, "gpu 0000:%02x:00.0\nname Test GPU %d\nuuid GPU-%d\nmemory 1000000\n"
                "compute 9.0\npcie 5 16 5 16\nlink 0 up gpu 0000:%02x:00.0 26562\nlink 1 down\n"
                "mig %d\npart MIG-%d 500000 a part\necc 1 3 0\nrows 0 0\nclocks 1500 1980\n"
                "throttle 4\np2p 3 1\n%s\n", 16 * (GPUS - i), i, i,
                16 * (GPUS - (i ^ 1)), i == 3, i, i == where ? extra : "");
    fclose(file);
}

static struct topo_node *ask(void)
{
    struct topo_input input = { .nvml = library, .variables = "" };
    struct topo_node *node = topo_node_new();
    struct err err = { 0 };

    /* Another source was first and found them in its own order, and one more. */
    topo_node_add_gpu(node, "0000:20:00.0");
    topo_node_add_gpu(node, "0000:70:00.0");
    topo_node_add_gpu(node, "0000:30:00.0");
    topo_node_set_text(&topo_node_add_gpu(node, "0000:10:00.0")->name, "by hwloc");
    assert_int_equal(topo_source_nvml.read(node, &input, &err), 0);
    return node;
}

static void gpus_are_joined_by_pci_address_not_by_index(void **state)
{
    struct topo_node *node;

    (void)state;
    write_gpus(-2, "");
    node = ask();
    assert_int_equal(node->n_gpus, GPUS + 1);
    for (int i = 0; i < GPUS; i++) {
        char *name = mem_printf("Test GPU %d", GPUS - 1 - i);

        assert_string_equal(node->gpus[i].name, name);
        assert_true(node->gpus[i].seen);
        free(name);
    }
    assert_false(node->gpus[GPUS].seen);
    assert_string_equal(node->gpus[GPUS].address, "0000:70:00.0");
    topo_node_free(node);
}

static void every_figure_arrives(void **state)
{
    struct topo_node *node;
    const struct topo_gpu *gpu;

    (void)state;
    write_gpus(-2, "");
    node = ask();
    gpu = &node->gpus[0];       /* index 3 of the library */
    assert_string_equal(node->driver, "550.1");
    assert_string_equal(gpu->uuid, "GPU-3");
    assert_true(gpu->memory == 1e6);
    assert_int_equal(gpu->compute, 90);
    assert_int_equal(gpu->pcie_gen, 5);
    assert_int_equal(gpu->pcie_max_width, 16);
    assert_int_equal(gpu->n_links, 2);
    assert_int_equal(gpu->links[0].up, 1);
    assert_true(gpu->links[0].bandwidth == 26562e6);
    assert_int_equal(gpu->links[0].remote, TOPO_REMOTE_GPU);
    assert_string_equal(gpu->links[0].address, "0000:20:00.0");
    assert_int_equal(gpu->links[1].up, 0);
    assert_int_equal(gpu->mig, 1);
    assert_int_equal(gpu->n_migs, 1);
    assert_string_equal(gpu->migs[0].name, "a part");
    assert_int_equal(gpu->ecc_corrected, 3);
    assert_int_equal(gpu->ecc_uncorrected, 0);
    assert_int_equal(gpu->clock, 1500);
    assert_int_equal(gpu->throttle, TOPO_THROTTLE_POWER_CAP);
    /* With the library's GPU 1 it is planted; of the GPU without driver it is not known. */
    assert_string_equal(gpu->p2p, "XKIK?");
    assert_string_equal(node->gpus[3].p2p, "KKIX?");
    topo_node_free(node);
}

static char *gpu_text(const struct topo_node *node, int gpu)
{
    json_t *json = topo_node_to_json(node);
    json_t *object = json_array_get(json_object_get(json, "gpus"), (size_t)gpu);
    char *text;

    json_object_del(object, "p2p");     /* speaks of the other GPUs too */
    text = json_dumps(object, JSON_COMPACT);
    json_decref(json);
    return text;
}

static bool has_fault(const struct topo_node *node, int gpu, const char *call)
{
    for (int i = 0; i < node->gpus[gpu].n_faults; i++)
        if (strstr(node->gpus[gpu].faults[i], call))
            return true;
    for (int i = 0; i < node->n_notes; i++)
        if (strstr(node->notes[i], call))
            return true;
    return false;
}

/* The call fails on the library's GPU 'where', which the node has at the other end: all others
 * are as before. Did it leave a trace: a fault, or figures that are not known?
 */
static bool fails_on_one_gpu(const char *call, int where)
{
    char *line = mem_printf("error %s 999", call);
    struct topo_node *good, *bad;
    int failed = GPUS - 1 - where;
    bool trace;

    write_gpus(-2, "");
    good = ask();
    write_gpus(where, line);
    bad = ask();
    assert_int_equal(bad->n_gpus, GPUS + 1);
    trace = has_fault(bad, failed, call);
    for (int i = 0; i <= GPUS; i++) {
        char *before = gpu_text(good, i), *after = gpu_text(bad, i);

        if (i != failed)
            assert_string_equal(before, after);
        else
            trace |= strcmp(before, after) != 0;
        free(before);
        free(after);
    }
    assert_string_equal(bad->gpus[failed].address, good->gpus[failed].address);
    topo_node_free(good);
    topo_node_free(bad);
    free(line);
    return trace;
}

/* All that are declared, so that none is forgotten; those of MIG are asked where it is on. The
 * library's GPU 0 is one that no other source knows: without its address it is but a note.
 */
static void an_error_of_any_call_on_one_gpu_leaves_the_others_whole(void **state)
{
#define NAME(name, arguments) #name,
    static const char *const calls[] = { NVML_CALLS(NAME) };
#undef NAME

    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        bool of_gpu = strncmp(calls[i], "Device", 6) == 0, trace = false;

        if (!of_gpu || strcmp(calls[i], "DeviceGetCount_v2") == 0)
            continue;
        for (int where = 1; where < GPUS; where++)
            trace |= fails_on_one_gpu(calls[i], where);
        if (!trace)
            fail_msg("nvml%s may fail without a trace", calls[i]);
    }
}

/* Of the library as a whole: no crash, and the GPUs that others found stay. */
static void an_error_of_any_other_call_leaves_what_is_known(void **state)
{
#define NAME(name, arguments) #name,
    static const char *const calls[] = { NVML_CALLS(NAME) };
#undef NAME

    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        char *line = mem_printf("error %s 999", calls[i]);
        struct topo_node *node;

        write_gpus(-1, line);
        node = ask();
        assert_true(node->n_gpus >= GPUS);
        assert_non_null(topo_node_said(node, "nvml"));
        topo_node_free(node);
        free(line);
    }
}

static void a_gpu_that_is_lost_is_noted_and_not_forgotten(void **state)
{
    struct topo_node *node;

    (void)state;
    write_gpus(3, "error DeviceGetHandleByIndex_v2 15");
    node = ask();
    assert_int_equal(node->n_gpus, GPUS + 1);
    assert_string_equal(node->gpus[0].name, "by hwloc");
    assert_false(node->gpus[0].seen);
    assert_int_equal(node->n_notes, 1);
    assert_contains(node->notes[0], "GPU is lost");
    assert_int_equal(node->gpus[1].n_faults, 0);
    topo_node_free(node);
}

static void what_is_not_collected_is_not_none(void **state)
{
    struct topo_node *node;

    (void)state;
    write_gpus(1, "error DeviceGetNvLinkState 999\nerror DeviceGetTotalEccErrors 999");
    node = ask();
    assert_int_equal(node->gpus[2].n_links, -1);
    assert_int_equal(node->gpus[2].ecc_uncorrected, -1);
    assert_int_equal(node->gpus[1].n_links, 2);
    topo_node_free(node);
}

static void a_library_that_fails_as_a_whole_says_so(void **state)
{
    static const char *const calls[] = { "Init_v2", "DeviceGetCount_v2" };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char *line = mem_printf("error %s 9", calls[i]);
        struct topo_node *node;

        write_gpus(-1, line);
        node = ask();
        assert_int_equal(node->n_gpus, 4);
        assert_int_equal(topo_node_said(node, "nvml")->state, TOPO_FAILED);
        assert_contains(topo_node_said(node, "nvml")->text, "Driver Not Loaded");
        topo_node_free(node);
        free(line);
    }
}

static void a_library_that_is_not_there_is_absent(void **state)
{
    struct topo_input input = { .nvml = "/nonexistent/libnvidia-ml.so.1", .variables = "" };
    struct topo_node *node = topo_node_new();
    struct err err = { 0 };

    (void)state;
    assert_int_equal(topo_source_nvml.read(node, &input, &err), 0);
    assert_int_equal(topo_node_said(node, "nvml")->state, TOPO_ABSENT);
    topo_node_free(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_are_joined_by_pci_address_not_by_index),
        cmocka_unit_test(every_figure_arrives),
        cmocka_unit_test(an_error_of_any_call_on_one_gpu_leaves_the_others_whole),
        cmocka_unit_test(an_error_of_any_other_call_leaves_what_is_known),
        cmocka_unit_test(a_gpu_that_is_lost_is_noted_and_not_forgotten),
        cmocka_unit_test(what_is_not_collected_is_not_none),
        cmocka_unit_test(a_library_that_fails_as_a_whole_says_so),
        cmocka_unit_test(a_library_that_is_not_there_is_absent),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, find_library, remove_files);
}
