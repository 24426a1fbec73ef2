/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <math.h>

#include "base/mem.h"
#include "topology/cluster.h"
#include "topology/names.h"
#include "topology/node_read.h"
#include "topology/record.h"
#include "topology/report.h"
#include "topology/switches.h"

static void expect_path(const char *address, const char *pattern, const char *path)
{
    struct err err = { 0 };
    char *found = switches_path(address, pattern, &err);

    if (!path && !found) {
        assert_non_null(strstr(err.text, address));
        return;
    }
    assert_non_null(path);
    if (!found)
        fail_msg("%s", err.text);
    assert_string_equal(found, path);
    free(found);
}

static void addresses_of_trees_blocks_and_flat_clusters_are_paths(void **state)
{
    (void)state;
    expect_path("spine.leaf1.n1", "switch.switch.node", "/spine/leaf1");
    expect_path("s0.s4.s8.tux1", "switch.switch.switch.node", "/s0/s4/s8");
    expect_path("b8.tux1", "block.node", "/b8");
    expect_path("n1", "node", "/");
}

static void a_level_without_a_switch_is_left_out_and_several_stay_together(void **state)
{
    (void)state;
    expect_path("spine..n1", "switch.switch.node", "/spine");
    expect_path("..n1", "switch.switch.node", "/");
    expect_path("spine.leaf[1-2].n1", "switch.switch.node", "/spine/leaf[1-2]");
    expect_path("leaf1.n1.example.org", "switch.node", "/leaf1");
}

static void an_address_that_does_not_fit_its_pattern_is_refused(void **state)
{
    (void)state;
    expect_path("leaf1.n1", "switch.switch.node", NULL);
    expect_path("leaf1.n1", "switch.", NULL);
    expect_path("leaf1.n1", "", NULL);
    expect_path("a/b.n1", "switch.node", NULL);
}

static void expect_names(const char *const *names, int n, const char *compact)
{
    char *text = names_compact(n, names);

    assert_string_equal(text, compact);
    free(text);
}

#define EXPECT_NAMES(compact, ...)                                                        \
    expect_names((const char *const[]){ __VA_ARGS__ },                                     \
                 (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)), compact)

static void names_are_written_as_slurm_writes_them(void **state)
{
    (void)state;
    expect_names(NULL, 0, "");
    EXPECT_NAMES("n1", "n1");
    EXPECT_NAMES("n[1-4]", "n1", "n2", "n3", "n4");
    EXPECT_NAMES("n[9-11]", "n9", "n10", "n11");
    EXPECT_NAMES("n[008-010]", "n008", "n009", "n010");
    EXPECT_NAMES("n[09,010]", "n09", "n010");
    EXPECT_NAMES("n[1-2,5,7-8]", "n1", "n2", "n5", "n7", "n8");
    EXPECT_NAMES("login,n[1-2],gpu3", "login", "n1", "n2", "gpu3");
    EXPECT_NAMES("r1n[1-2],r2n[1-2]", "r1n1", "r1n2", "r2n1", "r2n2");
    EXPECT_NAMES("n12345678901234567890,n1", "n12345678901234567890", "n1");
}

struct placed {
    struct cluster *cluster;
    const char *const *names;
};

static void place(void *context, int node, int parent)
{
    const struct placed *p = context;
    char *id = mem_printf("%s/gpu0", p->names[node]);
    int place = cluster_add_place(p->cluster, CLUSTER_NODE, p->names[node], parent, 1e9);

    cluster_add_device(p->cluster, id, "gpu", place, 1e9);
    free(id);
}

/* "spine(leaf1(n1 n3)leaf2(n2))n4" */
static void write_tree(const struct cluster *c, int parent, char *text)
{
    for (int i = parent + 1; i < c->n_places; i++) {
        if (c->places[i].parent != parent)
            continue;
        if (c->places[i].kind == CLUSTER_NODE) {
            sprintf(text + strlen(text), "%s ", c->places[i].name);
            continue;
        }
        sprintf(text + strlen(text), "%s(", c->places[i].name);
        write_tree(c, i, text);
        strcat(text, ")");
    }
}

static struct cluster *cluster_of(int n, const char *const *paths, const char *tree)
{
    static const char *const names[] = { "n1", "n2", "n3", "n4" };
    struct cluster *c = cluster_new("test");
    struct placed placed = { c, names };
    struct err err = { 0 };
    char text[256] = "";

    c->places[0].latency = 3e-6;
    switches_place(c, 0, n, paths, place, &placed);
    write_tree(c, 0, text);
    assert_string_equal(text, tree);
    if (cluster_check(c, &err))
        fail_msg("%s", err.text);
    return c;
}

static void nodes_of_a_switch_come_together_below_it(void **state)
{
    static const char *const paths[] = { "/spine/leaf1", "/spine/leaf2", "/spine/leaf1", "" };
    struct cluster *c = cluster_of(4, paths, "spine(leaf1(n1 n3 )leaf2(n2 ))n4 ");

    (void)state;
    assert_true(isinf(c->places[1].up_bandwidth));
    assert_true(c->places[1].latency == 3e-6 && c->places[2].latency == 3e-6);
    assert_true(cluster_link(c, 0, 1).bandwidth == 1e9);
    cluster_free(c);
}

static void without_switches_nodes_hang_on_the_network(void **state)
{
    static const char *const paths[] = { "/", "", "/", "" };

    (void)state;
    cluster_free(cluster_of(4, paths, "n1 n2 n3 n4 "));
}

static void of_many_levels_the_lowest_are_taken(void **state)
{
    static const char *const paths[] = { "/a/b/c/d/e/f", "//x///y//" };

    (void)state;
    cluster_free(cluster_of(2, paths, "c(d(e(f(n1 ))))x(y(n2 ))"));
}

static struct topo_node *node_in(const char *variables)
{
    struct topo_input input = { .variables = variables };
    struct topo_node *node = topo_node_new();
    struct err err = { 0 };

    assert_int_equal(topo_source_switches.read(node, &input, &err), 0);
    topo_node_set_text(&node->host, "n1");
    node->cores = node->pus = 1;
    return node;
}

static void expect_report(const char *variables, const char *expected)
{
    struct topo_node *node = node_in(variables);
    struct topo_record *record = topo_record_new();
    struct cluster *c = cluster_new("test");
    const char *paths[] = { node->switches }, *const names[] = { "n1" };
    struct placed placed = { c, names };
    struct err err = { 0 };
    char *text;

    assert_int_equal(topo_record_add_node(record, node, &err), 0);
    assert_string_equal(topo_record_switches(record, 0), node->switches);
    switches_place(c, 0, 1, paths, place, &placed);
    text = report_switches(record, c, &err);
    assert_string_equal(text, expected);
    free(text);
    cluster_free(c);
    topo_record_free(record);
    topo_node_free(node);
}

static void a_report_names_the_nodes_of_each_switch_and_who_says_so(void **state)
{
    (void)state;
    expect_report("SLURM_TOPOLOGY_ADDR=spine.leaf1.n1\n"
                  "SLURM_TOPOLOGY_ADDR_PATTERN=switch.switch.node\n",
                  "switches (SLURM_TOPOLOGY_ADDR)\n"
                  "  spine              leaf1\n"
                  "    leaf1            n1\n\n");
}

static void a_flat_cluster_and_one_not_collected_are_told_apart(void **state)
{
    (void)state;
    expect_report("SLURM_TOPOLOGY_ADDR=n1\nSLURM_TOPOLOGY_ADDR_PATTERN=node\n",
                  "switches\n"
                  "  no switches known: topology/none (SLURM_TOPOLOGY_ADDR)\n\n");
    expect_report("SLURM_JOB_ID=7\n", "switches\n"
                  "  not collected: Slurm set no SLURM_TOPOLOGY_ADDR here\n\n");
    expect_report("PATH=/bin\n", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_of_trees_blocks_and_flat_clusters_are_paths),
        cmocka_unit_test(a_level_without_a_switch_is_left_out_and_several_stay_together),
        cmocka_unit_test(an_address_that_does_not_fit_its_pattern_is_refused),
        cmocka_unit_test(names_are_written_as_slurm_writes_them),
        cmocka_unit_test(nodes_of_a_switch_come_together_below_it),
        cmocka_unit_test(without_switches_nodes_hang_on_the_network),
        cmocka_unit_test(of_many_levels_the_lowest_are_taken),
        cmocka_unit_test(a_report_names_the_nodes_of_each_switch_and_who_says_so),
        cmocka_unit_test(a_flat_cluster_and_one_not_collected_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
