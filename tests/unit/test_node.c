/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/mem.h"
#include "topology/node_read.h"
#include "topology/shape.h"

static struct topo_node *some_node(void)
{
    struct topo_node *node = topo_node_new();
    struct topo_gpu *gpu;
    struct topo_nic *nic;

    topo_node_set_text(&node->host, "n1");
    node->pus = 8;
    node->usable = mem_new(8, sizeof(int));
    for (int i = 0; i < 6; i++)
        node->usable[node->n_usable++] = i < 4 ? i : i + 2;
    topo_node_add_numa(node, 0)->package = 0;
    topo_node_add_pci(node, TOPO_PCI_HOST, "0000:[10-1f]");
    topo_node_add_pci(node, TOPO_PCI_DEVICE, "0000:1b:00.0")->parent = 0;
    gpu = topo_node_add_gpu(node, "0000:1b:00.0");
    topo_gpu_add_link(gpu, 3)->up = 0;
    topo_gpu_add_mig(gpu, "MIG-1")->memory = 5e9;
    topo_gpu_fault(gpu, "nvmlDeviceGetName: %s", "GPU is lost");
    topo_node_set_text(&gpu->p2p, "X");
    nic = topo_node_add_nic(node, "mlx5_0", 1);
    nic->hca = true;
    nic->bandwidth = 25e9;
    topo_node_note(node, "a remark");
    topo_node_say(node, "nvml", TOPO_FAILED, "why");
    return node;
}

static char *dump(const struct topo_node *node)
{
    json_t *json = topo_node_to_json(node);
    char *text = json_dumps(json, JSON_COMPACT);

    json_decref(json);
    return text;
}

static struct topo_node *parse(const char *text, struct err *err)
{
    json_t *json = json_loads(text, 0, NULL);
    struct topo_node *node = topo_node_from_json("test", json, err);

    json_decref(json);
    return node;
}

static void what_is_written_is_read_back_the_same(void **state)
{
    struct topo_node *node = some_node(), *again;
    struct err err = { 0 };
    char *before = dump(node), *after;

    (void)state;
    again = parse(before, &err);
    assert_non_null(again);
    after = dump(again);
    assert_string_equal(before, after);
    assert_contains(before, "\"usable\":\"0-3,6-7\"");
    assert_int_equal(again->n_usable, 6);
    assert_int_equal(again->gpus[0].n_links, 1);
    assert_string_equal(again->gpus[0].faults[0], "nvmlDeviceGetName: GPU is lost");
    free(before);
    free(after);
    topo_node_free(node);
    topo_node_free(again);
}

static void what_is_not_known_has_no_key_and_stays_unknown(void **state)
{
    struct topo_node *node = topo_node_new(), *again;
    struct err err = { 0 };
    char *text;

    (void)state;
    topo_node_add_gpu(node, "0000:1b:00.0");
    text = dump(node);
    assert_null(strstr(text, "ecc"));
    assert_null(strstr(text, "links"));
    assert_null(strstr(text, "visible"));
    again = parse(text, &err);
    assert_int_equal(again->gpus[0].n_links, -1);
    assert_int_equal(again->gpus[0].ecc_uncorrected, -1);
    assert_int_equal(again->n_visible, -1);
    free(text);
    topo_node_free(node);
    topo_node_free(again);
}

/* With the keys that no node lacks. */
static void refuse(const char *keys, const char *part)
{
    char *text = mem_printf("{\"host\": \"n1\", \"cores\": 1, \"pus\": 1, %s}", keys);
    struct err err = { 0 };

    assert_null(parse(text, &err));
    assert_contains(err.text, part);
    free(text);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    refuse("\"hosts\": \"x\"", "hosts");
    refuse("\"usable\": \"3-1\"", "usable");
    refuse("\"usable\": \"0-99999999\"", "usable");
    refuse("\"packages\": -2", "packages");
    refuse("\"gpus\": [{\"address\": 5}]", "gpus[0].address");
    refuse("\"gpus\": [{\"links\": [{\"remote\": \"moon\"}]}]", "gpus[0].links[0].remote");
    refuse("\"visible\": [0]", "visible[0]");
    refuse("\"gpus\": [{\"p2p\": \"XK\"}]", "p2p");
    refuse("\"pcis\": [{\"kind\": \"device\", \"parent\": 0}]", "pcis[0].parent");
    refuse("\"pcis\": [{\"kind\": \"device\"}, {\"kind\": \"device\", \"parent\": 0}]",
           "pcis[1].parent");
}

static void addresses_of_any_spelling_become_one(void **state)
{
    char address[32];

    (void)state;
    assert_int_equal(topo_pci_address("00000000:1B:00.0", address), 0);
    assert_string_equal(address, "0000:1b:00.0");
    assert_int_equal(topo_pci_address("10000:01:1F.7", address), 0);
    assert_string_equal(address, "10000:01:1f.7");
    assert_int_equal(topo_pci_address("virtio0", address), -1);
    assert_int_equal(topo_pci_address("0000:1b:00.0x", address), -1);
}

static void sets_are_ranges_that_ascend(void **state)
{
    static const int set[] = { 0, 1, 2, 5, 7, 8 };
    char *text = set_text(6, set);
    int n, *back;

    (void)state;
    assert_string_equal(text, "0-2,5,7-8");
    assert_int_equal(set_parse(text, 8, &n, &back), 0);
    assert_int_equal(n, 6);
    assert_memory_equal(back, set, sizeof(set));
    free(back);
    assert_int_equal(set_parse("", 8, &n, &back), 0);
    assert_int_equal(n, 0);
    free(back);
    assert_int_equal(set_parse("0-9", 8, &n, &back), -1);
    assert_int_equal(set_parse("2,1", 8, &n, &back), -1);
    assert_int_equal(set_parse("1,", 8, &n, &back), -1);
    assert_int_equal(set_parse("-1", 8, &n, &back), -1);
    assert_int_equal(set_parse("1-", 8, &n, &back), -1);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back_the_same),
        cmocka_unit_test(what_is_not_known_has_no_key_and_stays_unknown),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(addresses_of_any_spelling_become_one),
        cmocka_unit_test(sets_are_ranges_that_ascend),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
