/* SPDX-License-Identifier: MIT */
/* The adapters of tasks on recorded machines. */
#include "recorded.h"

#include "topology/node.h"
#include "topology/shape.h"
#include "train/rail.h"

static char *folder;

static int begin(void **state)
{
    static const char *const names[] = {
        "UCX_NET_DEVICES", "UCX_MAX_RNDV_RAILS", "UCX_MAX_EAGER_RAILS", "HFI_UNIT",
        "HFI_SELECTION_ALG", "PSM2_MULTIRAIL", "PSM2_MULTIRAIL_MAP", "MPI_LOCALRANKID",
        "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "UCX_TLS", "TASUKI_DEVFS",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    folder = unit_directory();
    setenv("TASUKI_SYSFS", folder, 1);
    return setenv("UCX_CONFIG_DIR", folder, 1);
}

static int end(void **state)
{
    (void)state;
    return unit_remove(folder);
}

/* What each of so many tasks of a node is told: "mlx5_0:1 mlx5_1:1", "-" for nothing. */
static void expect_on(const struct topo_node *node, int tasks, bool on_gpus, const int *gpus,
                      const char *expected)
{
    char *all = mem_strdup("");

    for (int i = 0; i < tasks; i++) {
        char rank[16], *more;
        const char *ucx, *unit;

        snprintf(rank, sizeof(rank), "%d", i);
        setenv("SLURM_LOCALID", rank, 1);
        rail_choose(node, tasks, on_gpus, gpus);
        ucx = getenv("UCX_NET_DEVICES");
        unit = getenv("HFI_UNIT");
        more = mem_printf("%s%s%s", all, i ? " " : "", ucx ? ucx : unit ? unit : "-");
        free(all);
        all = more;
        unsetenv("UCX_NET_DEVICES");
        unsetenv("HFI_UNIT");
    }
    unsetenv("SLURM_LOCALID");
    assert_string_equal(all, expected);
    free(all);
}

static void expect_of(const struct topo_node *node, int tasks, bool on_gpus, const char *expected)
{
    expect_on(node, tasks, on_gpus, NULL, expected);
}

static void expect(const char *machine, int tasks, const char *expected)
{
    struct topo_node *node = recorded_machine(machine);

    expect_of(node, tasks, true, expected);
    topo_node_free(node);
}

static void a_task_has_the_adapter_nearest_to_its_gpu(void **state)
{
    (void)state;
    expect("dgx1", 8, "mlx5_0:1 mlx5_0:1 mlx5_1:1 mlx5_1:1 mlx5_2:1 mlx5_2:1 mlx5_3:1 mlx5_3:1");
    expect("hgx-h100", 8, "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1 mlx5_4:1 mlx5_5:1 mlx5_6:1 mlx5_7:1");
    expect("omni-path", 4, "0 0 2 2");
}

static void with_fewer_tasks_than_adapters_each_may_use_all(void **state)
{
    (void)state;
    expect("dgx1", 4, "mlx5_0:1 mlx5_0:1 mlx5_1:1 mlx5_1:1");
    expect("dgx1", 3, "- - -");
    expect("hgx-h100", 7, "- - - - - - -");
    expect("omni-path", 1, "-");
    expect("one-socket", 2, "- -");
}

static void a_task_that_is_shown_one_gpu_takes_that(void **state)
{
    struct topo_node *node = recorded_machine("dgx1");

    (void)state;
    free(node->visible);
    node->visible = mem_new(2, sizeof(int));
    node->visible[0] = 6;
    node->visible[1] = 2;
    node->n_visible = 1;
    expect_of(node, 4, true, "mlx5_3:1 mlx5_3:1 mlx5_3:1 mlx5_3:1");
    /* Who of four takes which of two is not known yet. */
    node->n_visible = 2;
    expect_of(node, 4, true, "- - - -");
    topo_node_free(node);
}

static void gpus_that_are_known_decide(void **state)
{
    struct topo_node *node = recorded_machine("dgx1");

    (void)state;
    expect_on(node, 4, true, (const int[]){ 1, 2, 5, 6 }, "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1");
    topo_node_free(node);
}

static void without_gpus_cores_decide(void **state)
{
    struct topo_node *node = recorded_machine("dgx1");

    (void)state;
    free(node->usable);
    assert_int_equal(set_parse("20-39,60-79", 4096, &node->n_usable, &node->usable), 0);
    expect_of(node, 4, false, "mlx5_2:1 mlx5_3:1 mlx5_2:1 mlx5_3:1");
    free(node->usable);
    assert_int_equal(set_parse("19-20", 4096, &node->n_usable, &node->usable), 0);
    expect_of(node, 4, false, "- - - -");
    topo_node_free(node);
}

static void what_a_user_or_a_site_says_stays(void **state)
{
    char *file = mem_printf("%s/ucx.conf", folder);

    (void)state;
    setenv("UCX_MAX_RNDV_RAILS", "4", 1);
    expect("dgx1", 4, "- - - -");
    unsetenv("UCX_MAX_RNDV_RAILS");
    setenv("PSM2_MULTIRAIL", "1", 1);
    expect("omni-path", 4, "- - - -");
    unsetenv("PSM2_MULTIRAIL");
    unit_write(file, "# UCX_NET_DEVICES=mlx5_0:1\nUCX_LOG_LEVEL=warn\n");
    expect("omni-path", 4, "0 0 2 2");
    unit_write(file, "UCX_LOG_LEVEL=warn\nUCX_NET_DEVICES=mlx5_0:1\n");
    expect("dgx1", 4, "- - - -");
    unit_write(file, "UCX_TLS=tcp,sm,self\n");
    expect("dgx1", 4, "- - - -");
    unlink(file);
    setenv("UCX_TLS", "tcp,sm,self", 1);
    expect("dgx1", 4, "- - - -");
    unsetenv("UCX_TLS");
    unlink(file);
    free(file);
}

static void adapters_of_several_networks_stay_with_every_task(void **state)
{
    struct topo_node *node = recorded_machine("dgx1");

    (void)state;
    for (int i = 0; i < 4; i++) {
        char *make = mem_printf("mkdir -p %s/class/infiniband/mlx5_%d/ports/1/gids && echo "
                                "fe80:0000:0000:000%d:0000:0000:00c0:000%d "
                                ">%s/class/infiniband/mlx5_%d/ports/1/gids/0", folder, i, i / 2, i,
                                folder, i);

        assert_int_equal(system(make), 0);
        free(make);
    }
    expect_of(node, 4, true, "- - - -");
    assert_int_equal(system("sed -i s/0001:0000/0000:0000/ $TASUKI_SYSFS/class/infiniband/*/ports/1/"
                            "gids/0"), 0);
    expect_of(node, 4, true, "mlx5_0:1 mlx5_0:1 mlx5_1:1 mlx5_1:1");
    /* Ethernet of each port may be a network of its own. */
    for (int i = 0; i < node->n_nics; i++) {
        free(node->nics[i].fabric);
        node->nics[i].fabric = mem_strdup("Ethernet");
    }
    expect_of(node, 4, true, "- - - -");
    topo_node_free(node);
}

/* The files of a node's devices, in a container without some of them. */
static void adapters_that_cannot_be_opened_are_nobodys(void **state)
{
    static const char make[] = "mkdir -p $TASUKI_DEVFS/infiniband && for i in 0 1 2 3; do "
        "mkdir -p $TASUKI_SYSFS/class/infiniband/mlx5_$i/device/infiniband_verbs/uverbs$i && "
        "touch $TASUKI_DEVFS/infiniband/uverbs$i; done";
    char *dev = mem_printf("%s/dev", folder);

    (void)state;
    setenv("TASUKI_DEVFS", dev, 1);
    expect("dgx1", 4, "- - - -");
    assert_int_equal(system(make), 0);
    expect("dgx1", 4, "mlx5_0:1 mlx5_0:1 mlx5_1:1 mlx5_1:1");
    assert_int_equal(system("rm $TASUKI_DEVFS/infiniband/uverbs[123]"), 0);
    expect("dgx1", 4, "- - - -");
    expect("omni-path", 4, "- - - -");
    assert_int_equal(system("touch $TASUKI_DEVFS/hfi1_0 $TASUKI_DEVFS/hfi1_1 $TASUKI_DEVFS/hfi1_2 "
                            "$TASUKI_DEVFS/hfi1_3"), 0);
    expect("omni-path", 4, "0 0 2 2");
    unsetenv("TASUKI_DEVFS");
    free(dev);
}

/* Those of storage may be slower, or on one socket alone. */
static void on_cpus_adapters_that_are_not_alike_stay_with_every_task(void **state)
{
    struct topo_node *node = recorded_machine("dgx1");

    (void)state;
    free(node->usable);
    assert_int_equal(set_parse("20-39,60-79", 4096, &node->n_usable, &node->usable), 0);
    node->nics[0].bandwidth *= 2;
    expect_of(node, 4, false, "- - - -");
    node->nics[0].bandwidth /= 2;
    expect_of(node, 4, false, "mlx5_2:1 mlx5_3:1 mlx5_2:1 mlx5_3:1");
    for (int i = 0; i < node->n_nics; i++)
        if (strcmp(node->nics[i].name, "mlx5_1") == 0)
            node->nics[i].numa = 1;
    expect_of(node, 4, false, "- - - -");
    topo_node_free(node);
}

static void an_adapter_that_is_down_is_nobodys(void **state)
{
    struct topo_node *node = recorded_machine("dgx1");

    (void)state;
    for (int i = 0; i < node->n_nics; i++)
        if (strcmp(node->nics[i].name, "mlx5_1") == 0) {
            free(node->nics[i].state);
            node->nics[i].state = mem_strdup("DOWN");
        }
    expect_of(node, 8, true, "mlx5_0:1 mlx5_0:1 mlx5_0:1 mlx5_0:1 mlx5_2:1 mlx5_2:1 mlx5_3:1 mlx5_3:1");
    topo_node_free(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_has_the_adapter_nearest_to_its_gpu),
        cmocka_unit_test(with_fewer_tasks_than_adapters_each_may_use_all),
        cmocka_unit_test(a_task_that_is_shown_one_gpu_takes_that),
        cmocka_unit_test(gpus_that_are_known_decide),
        cmocka_unit_test(without_gpus_cores_decide),
        cmocka_unit_test(what_a_user_or_a_site_says_stays),
        cmocka_unit_test(adapters_of_several_networks_stay_with_every_task),
        cmocka_unit_test(an_adapter_that_is_down_is_nobodys),
        cmocka_unit_test(adapters_that_cannot_be_opened_are_nobodys),
        cmocka_unit_test(on_cpus_adapters_that_are_not_alike_stay_with_every_task),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, begin, end);
}
