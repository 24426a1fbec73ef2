/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/mem.h"
#include "topology/distance.h"
#include "topology/node_read.h"

/* A host bridge; on it a card, and a switch with a card and a switch of its own with two. */
static struct topo_node *some_node(void)
{
    static const struct { int kind, parent, numa; const char *address; } pcis[] = {
        { TOPO_PCI_HOST, -1, 0, "0000:[00-1f]" },
        { TOPO_PCI_BRIDGE, 0, 0, "0000:00:01.0" },
        { TOPO_PCI_BRIDGE, 1, 0, "0000:01:00.0" },
        { TOPO_PCI_BRIDGE, 2, 0, "0000:02:00.0" },
        { TOPO_PCI_DEVICE, 3, 0, "0000:03:00.0" },
        { TOPO_PCI_BRIDGE, 2, 0, "0000:02:04.0" },
        { TOPO_PCI_BRIDGE, 5, 0, "0000:04:00.0" },
        { TOPO_PCI_BRIDGE, 6, 0, "0000:05:00.0" },
        { TOPO_PCI_DEVICE, 7, 0, "0000:06:00.0" },
        { TOPO_PCI_BRIDGE, 6, 0, "0000:05:04.0" },
        { TOPO_PCI_DEVICE, 9, 0, "0000:07:00.0" },
        { TOPO_PCI_BRIDGE, 0, 0, "0000:00:02.0" },
        { TOPO_PCI_DEVICE, 11, 0, "0000:08:00.0" },
        { TOPO_PCI_HOST, -1, 0, "0000:[20-2f]" },
        { TOPO_PCI_DEVICE, 13, 0, "0000:21:00.0" },
        { TOPO_PCI_HOST, -1, 1, "0000:[80-8f]" },
        { TOPO_PCI_DEVICE, 15, 1, "0000:81:00.0" },
    };
    struct topo_node *node = topo_node_new();

    node->numa_nodes = 2;
    for (size_t i = 0; i < sizeof(pcis) / sizeof(pcis[0]); i++) {
        struct topo_pci *pci = topo_node_add_pci(node, (enum topo_pci_kind)pcis[i].kind,
                                                 pcis[i].address);

        pci->parent = pcis[i].parent;
        pci->numa = pcis[i].numa;
        if (pcis[i].kind == TOPO_PCI_DEVICE)
            topo_node_add_gpu(node, pcis[i].address)->numa = pcis[i].numa;
    }
    return node;
}

static void expect(const struct topo_node *node, int a, int b, const char *word)
{
    char text[16];

    assert_string_equal(topo_distance_word(topo_distance_gpus(node, a, b), text), word);
    assert_string_equal(topo_distance_word(topo_distance_gpus(node, b, a), text), word);
}

static void no_links(struct topo_node *node)
{
    for (int i = 0; i < node->n_gpus; i++)
        node->gpus[i].n_links = 0;
}

static void words_follow_the_bridges_between(void **state)
{
    struct topo_node *node = some_node();

    (void)state;
    no_links(node);
    expect(node, 0, 0, "X");
    expect(node, 1, 2, "PIX");
    expect(node, 0, 1, "PXB");
    expect(node, 0, 3, "PHB");
    expect(node, 0, 4, "NODE");
    expect(node, 0, 5, "SYS");
    topo_node_free(node);
}

static void what_is_not_known_is_no_distance(void **state)
{
    struct topo_node *node = some_node();

    (void)state;
    no_links(node);
    node->gpus[4].numa = -1;
    expect(node, 0, 4, "?");
    topo_node_set_text(&node->gpus[5].address, "0000:ff:00.0");
    expect(node, 0, 5, "?");
    topo_node_free(node);
}

static void nvlinks_count_where_both_ends_are_up(void **state)
{
    struct topo_node *node = some_node();

    (void)state;
    no_links(node);
    for (int i = 0; i < 3; i++) {
        struct topo_nvlink *link = topo_gpu_add_link(&node->gpus[0], i);

        link->up = i < 2;
        link->remote = TOPO_REMOTE_GPU;
        topo_node_set_text(&link->address, node->gpus[5].address);
        link = topo_gpu_add_link(&node->gpus[5], i);
        link->up = 1;
        link->remote = TOPO_REMOTE_GPU;
        topo_node_set_text(&link->address, node->gpus[0].address);
    }
    expect(node, 0, 5, "NV2");
    expect(node, 0, 1, "PXB");
    topo_node_free(node);
}

static void switches_join_all_by_the_fewer_links(void **state)
{
    struct topo_node *node = some_node();

    (void)state;
    no_links(node);
    for (int i = 0; i < 12; i++) {
        struct topo_nvlink *link = topo_gpu_add_link(&node->gpus[i % 2], i / 2);

        link->up = i != 3;
        link->bandwidth = 25e9;
        link->remote = TOPO_REMOTE_SWITCH;
        topo_node_set_text(&link->address, "0000:c0:00.0");
    }
    expect(node, 0, 1, "NV5");
    assert_true(topo_distance_gpus(node, 0, 1).bandwidth == 125e9);
    expect(node, 0, 2, "PXB");
    topo_node_free(node);
}

static void links_that_were_not_collected_are_not_none(void **state)
{
    struct topo_node *node = some_node();

    (void)state;
    expect(node, 0, 1, "PXB*");
    topo_node_free(node);
}

static void gpus_that_are_as_near_share_nics_in_turn(void **state)
{
    static const char *const addresses[] = { "0000:06:00.0", "0000:07:00.0", "0000:81:00.0" };
    struct topo_node *node = topo_node_new();
    struct topo_node *tree = some_node();
    int *rails;

    (void)state;
    for (int i = 2; i >= 0; i--) {
        struct topo_nic *nic = topo_node_add_nic(tree, i ? "b" : "a", 1);

        nic->hca = true;
        topo_node_set_text(&nic->address, addresses[i]);
        nic->numa = i == 2;
    }
    assert_int_equal(topo_rails(tree, &rails), 3);
    assert_int_equal(rails[0], 2);
    assert_int_equal(rails[2], 0);
    free(rails);
    assert_int_equal(topo_nearest_rail(tree, 5), 2);
    /* All of the first socket are as far from rail 0 as from rail 1. */
    for (int i = 0; i < 5; i++)
        assert_int_equal(topo_nearest_rail(tree, i), i % 2);
    topo_node_set_text(&tree->nics[2].state, "DOWN");
    assert_int_equal(topo_nearest_rail(tree, 0), 1);
    assert_int_equal(topo_nearest_rail(node, 0), -1);
    topo_node_free(tree);
    topo_node_free(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_follow_the_bridges_between),
        cmocka_unit_test(what_is_not_known_is_no_distance),
        cmocka_unit_test(nvlinks_count_where_both_ends_are_up),
        cmocka_unit_test(switches_join_all_by_the_fewer_links),
        cmocka_unit_test(links_that_were_not_collected_are_not_none),
        cmocka_unit_test(gpus_that_are_as_near_share_nics_in_turn),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
