/* SPDX-License-Identifier: MIT */
/* What the kernel's files say about GPUDirect, in folders that stand for /sys and /proc. */
#include "unit.h"

#include <sys/stat.h>

#include "base/mem.h"
#include "topology/node_read.h"

#define OPEN "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15\n"
#define CLOSED "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\n"
#define SYMBOL "0000000000000000 t ib_umem_dmabuf_get\t[ib_uverbs]\n"

/* Folders and files below the top; NULL: not there. */
static const struct {
    const char *folders[4];
    const char *version, *symbols;
    int expected;
    const char *by;
} cases[] = {
    { { NULL }, OPEN, SYMBOL, -1, "" },                         /* no driver */
    { { "module/nvidia" }, CLOSED, "", -1, "" },                /* no adapter */
    { { "module/nvidia", "module/nvidia_peermem" }, NULL, NULL, 1, "nvidia_peermem" },
    { { "module/nvidia", "module/nv_peer_mem" }, NULL, NULL, 1, "nv_peer_mem" },
    { { "kernel/mm/memory_peers/nv_mem" }, NULL, NULL, 1, "nv_peer_mem" },
    { { "kernel/mm/memory_peers/nvidia-peermem" }, NULL, NULL, 1, "nvidia_peermem" },
    { { "module/nvidia/holders/hfi1" }, NULL, NULL, 1, "hfi1" },
    { { "module/nvidia", "class/infiniband" }, OPEN, "1 t x\n" SYMBOL, 1, "DMA-BUF" },
    { { "module/nvidia", "class/infiniband" }, CLOSED, SYMBOL, 0, "no DMA-BUF without" },
    { { "module/nvidia", "class/infiniband" }, OPEN, "1 t x\n", 0, "verbs lack DMA-BUF" },
    { { "module/nvidia", "class/infiniband" }, OPEN, NULL, -1, "kallsyms was not read" },
    { { "module/nvidia", "class/infiniband" }, NULL, SYMBOL, -1, "version was not read" },
};

static void make_folders(const char *top, const char *name)
{
    char *path = mem_printf("%s/%s", top, name);

    for (char *c = path + strlen(top) + 1; *c; c++)
        if (*c == '/') {
            *c = '\0';
            mkdir(path, 0755);
            *c = '/';
        }
    assert_int_equal(mkdir(path, 0755) && access(path, F_OK), 0);
    free(path);
}

static void put(const char *top, const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", top, name);

    if (text)
        unit_write(path, text);
    free(path);
}

static void each_way_is_told_and_what_cannot_be_read_stays_unknown(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *top = mem_strdup(unit_directory());
        struct topo_input input = { .sys = top, .proc = top, .variables = "" };
        struct topo_node *node = topo_node_new();
        struct err err = { 0 };

        make_folders(top, "driver/nvidia");
        for (int f = 0; cases[i].folders[f]; f++)
            make_folders(top, cases[i].folders[f]);
        put(top, "driver/nvidia/version", cases[i].version);
        put(top, "kallsyms", cases[i].symbols);
        assert_int_equal(topo_source_gpudirect.read(node, &input, &err), 0);
        if (node->gpudirect != cases[i].expected || !strstr(node->gpudirect_by, cases[i].by))
            fail_msg("case %zu: %d, \"%s\"", i, node->gpudirect, node->gpudirect_by);
        topo_node_free(node);
        assert_int_equal(unit_remove(top), 0);
        free(top);
    }
}

static void without_files_nothing_is_known(void **state)
{
    struct topo_input input = { .variables = "" };
    struct topo_node *node = topo_node_new();
    struct err err = { 0 };

    (void)state;
    assert_int_equal(topo_source_gpudirect.read(node, &input, &err), 0);
    assert_int_equal(node->gpudirect, -1);
    topo_node_free(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_way_is_told_and_what_cannot_be_read_stays_unknown),
        cmocka_unit_test(without_files_nothing_is_known),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
