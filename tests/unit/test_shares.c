/* SPDX-License-Identifier: MIT */
/* Cores of a node with 2 sockets of 56 cores and 4 GPUs near each, or of what is left of it. */
#include "recorded.h"

#include "topology/node.h"
#include "topology/shape.h"
#include "topology/shares.h"

static struct topo_node *machine(const char *usable)
{
    struct topo_node *node = recorded_machine("hgx-h100");

    free(node->usable);
    node->n_usable = 0;
    node->usable = NULL;
    assert_int_equal(set_parse(usable, 4096, &node->n_usable, &node->usable), 0);
    return node;
}

/* "0-3 4-7"; "none" */
static void expect(const struct shares_request *request, const char *text)
{
    struct share *shares = shares_of(request);
    char *all = mem_strdup(shares ? "" : "none");

    for (int r = 0; shares && r < request->ranks; r++) {
        char *set = set_text(shares[r].n, shares[r].pus);
        char *more = mem_printf("%s%s%s", all, r ? " " : "", set);

        free(all);
        free(set);
        all = more;
    }
    assert_string_equal(all, text);
    free(all);
    shares_free(request->ranks, shares);
}

static void shares_are_even_and_of_one_numa_node_where_that_goes(void **state)
{
    struct topo_node *node = machine("0-111");
    struct shares_request request = { .node = node, .ranks = 2 };

    (void)state;
    expect(&request, "0-55 56-111");
    request.ranks = 5;
    expect(&request, "0-21 22-43 56-77 78-99 44-55,100-109");
    request.ranks = 1;
    expect(&request, "0-111");
    request.most = 3;
    expect(&request, "0-2");
    topo_node_free(node);
}

static void only_what_the_process_may_use_is_shared_out(void **state)
{
    struct topo_node *node = machine("4-10,60-66");
    struct shares_request request = { .node = node, .ranks = 4 };

    (void)state;
    assert_int_equal(shares_cores(&request), 14);
    expect(&request, "4-6 7-9 60-62 63-65");
    request.ranks = 15;
    expect(&request, "none");
    request.ranks = 0;
    expect(&request, "none");
    topo_node_free(node);
}

static void ranks_are_near_the_gpus_that_they_are_said_to_have(void **state)
{
    static const int gpus[] = { 5, -1, 0 };
    struct topo_node *node = machine("0-3,56-59");
    struct shares_request request = { .node = node, .ranks = 3, .gpus = gpus };

    (void)state;
    expect(&request, "56-57 2-3 0-1");
    request.most = 1;
    expect(&request, "56 1 0");
    topo_node_free(node);
}

static void a_core_goes_to_one_rank_with_all_its_threads(void **state)
{
    static const int cores[] = { 0, 1, 2, 0, 1, 2 };
    struct topo_node *node = machine("0-2,56-58");
    struct shares_request request = { .node = node, .cores = cores, .ranks = 3 };

    (void)state;
    assert_int_equal(shares_cores(&request), 3);
    expect(&request, "0,56 1,57 2,58");
    request.ranks = 2;
    expect(&request, "0,56 1,57");
    request.ranks = 4;
    expect(&request, "none");
    topo_node_free(node);
}

static void ranks_get_cores_near_their_gpu(void **state)
{
    static const int turned[] = { 7, 1, 6, 0 };
    struct topo_node *node = machine("0-3,56-59");
    struct shares_request request = { .node = node, .ranks = 8, .on_gpus = true };

    (void)state;
    expect(&request, "0 1 2 3 56 57 58 59");
    node->n_visible = 4;
    node->visible = mem_new(4, sizeof(int));
    memcpy(node->visible, turned, sizeof(turned));
    request.ranks = 4;
    expect(&request, "56-57 0-1 58-59 2-3");
    topo_node_free(node);
}

static void where_a_socket_has_no_cores_left_its_gpus_take_others(void **state)
{
    struct topo_node *node = machine("0-1,56-61");
    struct shares_request request = { .node = node, .ranks = 2, .on_gpus = true };

    (void)state;
    node->n_visible = 2;
    node->visible = mem_new(2, sizeof(int));
    node->visible[1] = 1;           /* both near the first socket */
    expect(&request, "0,56-58 1,59-61");
    request.on_gpus = false;
    expect(&request, "56-59 0-1,60-61");
    topo_node_free(node);
}

static void fewer_gpus_than_ranks_decide_nothing(void **state)
{
    struct topo_node *node = machine("0-1,56-57");
    struct shares_request request = { .node = node, .ranks = 2, .on_gpus = true };

    (void)state;
    node->n_visible = 1;
    node->visible = mem_new(1, sizeof(int));
    node->visible[0] = 7;
    expect(&request, "0-1 56-57");
    topo_node_free(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_even_and_of_one_numa_node_where_that_goes),
        cmocka_unit_test(only_what_the_process_may_use_is_shared_out),
        cmocka_unit_test(ranks_are_near_the_gpus_that_they_are_said_to_have),
        cmocka_unit_test(a_core_goes_to_one_rank_with_all_its_threads),
        cmocka_unit_test(ranks_get_cores_near_their_gpu),
        cmocka_unit_test(where_a_socket_has_no_cores_left_its_gpus_take_others),
        cmocka_unit_test(fewer_gpus_than_ranks_decide_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
