/* SPDX-License-Identifier: MIT */
#include "recorded.h"

#include "base/json.h"
#include "base/mem.h"
#include "topology/check.h"
#include "topology/node_read.h"
#include "topology/record.h"

#define NODES 64

static uint64_t dice = 1;

static int draw(int n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (int)((dice >> 33) % (uint64_t)n);
}

static struct topo_node *sound_node(void)
{
    return recorded_machine("hgx-h100");
}

/* What healthy siblings do not share: serials, clocks, some memory, the order of names. */
static struct topo_node *sibling(int number)
{
    struct topo_node *node = sound_node();
    char text[64];

    snprintf(text, sizeof(text), "n%03d", number);
    topo_node_set_text(&node->host, text);
    node->memory *= 1 - 0.0001 * draw(100);
    for (int i = 0; i < node->n_gpus; i++) {
        snprintf(text, sizeof(text), "GPU-%08x-%d", (unsigned)draw(1 << 30), number);
        topo_node_set_text(&node->gpus[i].uuid, text);
        node->gpus[i].clock = 345 + draw(1600);
        node->gpus[i].throttle = draw(2) ? TOPO_THROTTLE_IDLE : TOPO_THROTTLE_POWER_CAP;
        node->gpus[i].ecc_corrected = draw(5);
        node->gpus[i].pcie_gen = 1 + draw(5);
    }
    for (int i = node->n_nics - 1; i > 0; i--) {
        int j = draw(i + 1);
        struct topo_nic swapped = node->nics[i];

        node->nics[i] = node->nics[j];
        node->nics[j] = swapped;
    }
    for (int i = 0; i < node->n_nics; i++) {
        snprintf(text, sizeof(text), "mlx5_%d", i);
        topo_node_set_text(&node->nics[i].name, text);
        node->nics[i].lid = draw(0xc000);
    }
    return node;
}

static void dead_link(struct topo_node *node)
{
    node->gpus[draw(8)].links[draw(18)].up = 0;
}

static void slow_link(struct topo_node *node)
{
    node->gpus[draw(8)].links[draw(18)].bandwidth /= 2;
}

static void slow_port(struct topo_node *node)
{
    struct topo_nic *nic = &node->nics[draw(8)];

    nic->bandwidth /= 4;
    topo_node_set_text(&nic->rate, "100 Gb/sec (1X NDR)");
}

static void dead_port(struct topo_node *node)
{
    topo_node_set_text(&node->nics[draw(8)].state, "DOWN");
}

static void narrow_nic(struct topo_node *node)
{
    node->nics[draw(8)].pcie_width = 8;
}

static void narrow_gpu(struct topo_node *node)
{
    node->gpus[draw(8)].pcie_width = 8;
}

static void hot_gpu(struct topo_node *node)
{
    node->gpus[draw(8)].throttle |= draw(2) ? TOPO_THROTTLE_HW_THERMAL
                                            : TOPO_THROTTLE_POWER_BRAKE;
}

static void bad_memory(struct topo_node *node)
{
    node->gpus[draw(8)].ecc_uncorrected = 1 + draw(9);
}

static void no_gpudirect(struct topo_node *node)
{
    node->gpudirect = 0;
    topo_node_set_text(&node->gpudirect_by, "no nvidia_peermem");
}

static void across_sockets(struct topo_node *node)
{
    node->n_usable = 0;
    for (int i = 0; i < 4; i++)
        node->usable[node->n_usable++] = 54 + i;
}

static void isolated(struct topo_node *node)
{
    node->isolated = 1;
}

static void forget_links(struct topo_gpu *gpu)
{
    for (int i = 0; i < gpu->n_links; i++)
        free(gpu->links[i].address);
    gpu->n_links = -1;
}

static void lost_gpu(struct topo_node *node)
{
    struct topo_gpu *gpu = &node->gpus[draw(8)];

    gpu->seen = false;
    forget_links(gpu);
    gpu->ecc = gpu->mig = gpu->pcie_width = -1;
    gpu->ecc_corrected = gpu->ecc_uncorrected = gpu->throttle = -1;
}

static void silent_gpu(struct topo_node *node)
{
    topo_gpu_fault(&node->gpus[draw(8)], "nvmlDeviceGetMemoryInfo: Unknown Error");
}

static void no_access(struct topo_node *node)
{
    node->gpus[draw(7)].p2p[7] = 'D';
}

static void old_driver(struct topo_node *node)
{
    topo_node_set_text(&node->driver, "470.1");
}

static void less_memory(struct topo_node *node)
{
    node->memory *= 0.9;
}

static void no_ecc(struct topo_node *node)
{
    node->gpus[draw(8)].ecc = 0;
}

static void dead_driver(struct topo_node *node)
{
    for (int i = 0; i < node->n_said; i++)
        if (strcmp(node->said[i].name, "nvml") == 0) {
            node->said[i].state = TOPO_FAILED;
            topo_node_set_text(&node->said[i].text, "Driver Not Loaded");
        }
}

static const struct fault {
    void (*plant)(struct topo_node *node);
    const char *what;       /* part of what the check calls it */
} faults[] = {
    { dead_link, "NVLinks up" },        { slow_link, "slowest NVLink" },
    { slow_port, "rate" },              { dead_port, "state" },
    { narrow_nic, "PCIe width" },       { narrow_gpu, "PCIe width" },
    { hot_gpu, "throttled" },           { bad_memory, "uncorrected ECC" },
    { no_gpudirect, "GPUDirect" },      { across_sockets, "across sockets" },
    { isolated, "isolated" },           { lost_gpu, "that the driver shows" },
    { silent_gpu, "does not answer" },  { no_access, "access to other GPUs" },
    { old_driver, "driver" },           { less_memory, "memory" },
    { no_ecc, "ECC" },                  { dead_driver, "source nvml" },
};
#define FAULTS ((int)(sizeof(faults) / sizeof(faults[0])))

/* planted[i]: bits of the faults of node i. */
static struct findings *check(const unsigned *planted)
{
    struct topo_record *record = topo_record_new();
    struct findings *findings;
    struct err err = { 0 };

    for (int i = 0; i < NODES; i++) {
        struct topo_node *node = sibling(i);

        for (int f = 0; f < FAULTS; f++)
            if (planted[i] & 1u << f)
                faults[f].plant(node);
        assert_int_equal(topo_record_add_node(record, node, &err), 0);
        topo_node_free(node);
    }
    findings = topo_check(record, NULL, &err);
    if (!findings)
        fail_msg("%s", err.text);
    topo_record_free(record);
    return findings;
}

static void healthy_siblings_have_no_findings(void **state)
{
    static const unsigned none[NODES];
    struct findings *findings = check(none);
    char *text = findings_text(findings);

    (void)state;
    if (findings->n)
        fail_msg("%s", text);
    assert_string_equal(text, "0 problems on 0 of 64 nodes\n");
    free(text);
    findings_free(findings);
}

static bool found(const struct findings *findings, int node, const char *what)
{
    char host[16];

    snprintf(host, sizeof(host), "n%03d", node);
    for (int i = 0; i < findings->n; i++)
        if (strcmp(findings->list[i].host, host) == 0 &&
            (!what || strstr(findings->list[i].what, what)))
            return true;
    return false;
}

static void compare(const struct findings *findings, const unsigned *planted)
{
    for (int i = 0; i < NODES; i++) {
        for (int f = 0; f < FAULTS; f++)
            if (planted[i] & 1u << f && !found(findings, i, faults[f].what))
                fail_msg("node %d: \"%s\" was not found", i, faults[f].what);
        if (!planted[i] && found(findings, i, NULL))
            fail_msg("node %d is healthy", i);
    }
}

static void each_kind_of_fault_is_found_on_its_node(void **state)
{
    unsigned planted[NODES] = { 0 };
    struct findings *findings;

    (void)state;
    for (int f = 0; f < FAULTS; f++)
        planted[3 * f + 1] = 1u << f;
    findings = check(planted);
    compare(findings, planted);
    for (int i = 0; i < findings->n; i++)
        assert_true(findings->list[i].advice[0] && findings->list[i].evidence[0]);
    findings_free(findings);
}

/* What one fault hides of another, when both are on the same GPU, is no fault of the check. */
static void faults_drawn_at_random_are_found_and_no_others(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        unsigned planted[NODES] = { 0 };
        int n = 1 + draw(8);
        struct findings *findings;

        for (int i = 0; i < n; i++) {
            int f = draw(FAULTS), node = draw(NODES);
            bool hides = faults[f].plant == lost_gpu || faults[f].plant == dead_driver;

            if (!planted[node] || !hides)
                planted[node] |= 1u << f;
        }
        for (int i = 0; i < NODES; i++)     /* a lost GPU says nothing of its links */
            if (planted[i] & 1u << 11)
                planted[i] = 1u << 11;
        findings = check(planted);
        compare(findings, planted);
        findings_free(findings);
    }
}

static void the_report_has_evidence_advice_and_whom_to_exclude(void **state)
{
    unsigned planted[NODES] = { [7] = 1u << 0, [40] = 1u << 8 };
    struct findings *findings = check(planted);
    char *text = findings_text(findings);
    json_t *json = findings_to_json(findings);

    (void)state;
    assert_contains(text, "2 problems on 2 of 64 nodes\n");
    assert_contains(text, "NVLinks up: 17 of 18; 63 of 63 siblings have 18 of 18\n");
    assert_contains(text, "none: no nvidia_peermem; 63 of 63 siblings have by nvidia_peermem");
    assert_contains(text, "--exclude=n007,n040\n");
    assert_int_equal(json_array_size(json_object_get(json, "exclude")), 2);
    json_decref(json);
    free(text);
    findings_free(findings);
}

static void what_was_not_collected_is_not_held_against_a_node(void **state)
{
    struct topo_record *record = topo_record_new();
    struct findings *findings;
    struct err err = { 0 };

    (void)state;
    for (int i = 0; i < 8; i++) {
        struct topo_node *node = sibling(i);

        if (i == 3) {
            forget_links(&node->gpus[2]);
            node->gpudirect = node->gpus[1].ecc = -1;
            node->nics[5].bandwidth = 0;
        }
        assert_int_equal(topo_record_add_node(record, node, &err), 0);
        topo_node_free(node);
    }
    findings = topo_check(record, NULL, &err);
    assert_int_equal(findings->n, 0);
    findings_free(findings);
    topo_record_free(record);
}

static void two_nodes_differ_in_what_is_told(void **state)
{
    struct topo_node *a = sibling(1), *b = sibling(2);
    char *text;
    int n;

    (void)state;
    text = topo_diff(a, b, &n);
    assert_string_equal(text, "");
    free(text);
    no_gpudirect(b);
    b->gpus[3].links[2].up = 0;
    a->gpus[5].ecc = -1;
    text = topo_diff(a, b, &n);
    assert_int_equal(n, 3);
    assert_string_equal(text, "GPU3: NVLinks up: 18 of 18 | 17 of 18\n"
                        "GPU5: ECC: not collected | on\n"
                        "GPUDirect: by nvidia_peermem | none: no nvidia_peermem\n");
    free(text);
    topo_node_free(a);
    topo_node_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(healthy_siblings_have_no_findings),
        cmocka_unit_test(each_kind_of_fault_is_found_on_its_node),
        cmocka_unit_test(faults_drawn_at_random_are_found_and_no_others),
        cmocka_unit_test(the_report_has_evidence_advice_and_whom_to_exclude),
        cmocka_unit_test(what_was_not_collected_is_not_held_against_a_node),
        cmocka_unit_test(two_nodes_differ_in_what_is_told),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
