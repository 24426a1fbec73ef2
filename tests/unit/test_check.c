/* SPDX-License-Identifier: MIT */
/* Faults planted among 64 nodes with 8 GPUs, 8 NICs and 8 tasks each: just they are found. */
#include "patient.h"
#include "recorded.h"

#include <stdbool.h>
#include <sys/wait.h>

#include "base/json.h"
#include "base/mem.h"
#include "topology/check.h"
#include "topology/cluster.h"
#include "topology/diff.h"
#include "topology/model.h"
#include "topology/node_read.h"
#include "topology/record.h"
#include "topology/task.h"

#define NODES 64
#define ROUNDS 16

static unsigned bit(void (*plant)(struct patient *p))
{
    for (int f = 0; f < FAULTS; f++)
        if (faults[f].plant == plant)
            return 1u << f;
    return 0;
}

/* planted[i]: bits of the faults of node i. */
struct ward {
    struct topo_record *record;
    json_t *tasks;
    int n_expected;
    char expected[NODES * 8][80];   /* "n007: GPU3: NVLinks up" */
};

static void admit(struct ward *ward, int number, unsigned planted)
{
    struct patient p;
    struct err err = { 0 };

    start(&p, number);
    for (int f = 0; f < FAULTS; f++)
        if (planted & 1u << f)
            faults[f].plant(&p);
    for (int i = 0; i < UNITS; i++) {
        json_t *task = json_pack("{s:i, s:s, s:s}", "rank", i, "host", p.node->host, "usable",
                                 p.tasks[i].cpus);

        if (p.tasks[i].visible[0])
            json_object_set_new(task, "visible", json_loads(p.tasks[i].visible, 0, NULL));
        if (p.tasks[i].shown[0])
            json_object_set_new(task, "shown", json_string(p.tasks[i].shown));
        json_array_append_new(ward->tasks, task);
    }
    for (int i = 0; i < p.n_expected; i++)
        snprintf(ward->expected[ward->n_expected++], sizeof(ward->expected[0]), "%.8s: %s",
                 p.node->host, p.expected[i]);
    if (topo_record_add_node(ward->record, p.node, &err))
        fail_msg("%s", err.text);
    p.node->n_gpus += p.gone_gpus;
    p.node->n_nics += p.gone_nics;
    topo_node_free(p.node);
}

static struct findings *examine(const struct ward *ward)
{
    struct err err = { 0 };
    struct topo_tasks *tasks = topo_tasks_from_json("test", ward->tasks, &err);
    struct findings *findings =
        tasks ? topo_check(ward->record, tasks, NULL, NULL, &err) : NULL;

    if (!findings)
        fail_msg("%s", err.text);
    topo_tasks_free(tasks);
    return findings;
}

static struct ward open_ward(const unsigned *planted)
{
    struct ward ward = { .record = topo_record_new(), .tasks = json_array() };

    for (int i = 0; i < NODES; i++)
        admit(&ward, i, planted[i]);
    return ward;
}

static void close_ward(struct ward *ward)
{
    topo_record_free(ward->record);
    json_decref(ward->tasks);
}

static bool is_expected(const struct ward *ward, const struct finding *f)
{
    char *text = f->ranks ? mem_printf("%s: %s: %s", f->host, f->ranks, f->what)
                          : mem_printf("%s: %s", f->host, f->what);
    bool found = false;

    for (int i = 0; i < ward->n_expected; i++)
        found |= strcmp(text, ward->expected[i]) == 0;
    if (!found)
        printf("# \"%s\" was not planted: %s\n", text, f->evidence);
    free(text);
    return found;
}

/* The sets are the same: none is planted, and none found, twice. */
static void compare(const struct ward *ward, const struct findings *findings)
{
    for (int i = 0; i < findings->n; i++)
        if (!is_expected(ward, &findings->list[i]))
            fail_msg("a finding too many");
    if (findings->n != ward->n_expected)
        fail_msg("%d of %d were found", findings->n, ward->n_expected);
}

static void healthy_siblings_have_no_findings(void **state)
{
    static const unsigned none[NODES];

    (void)state;
    for (unsigned round = 0; round < some_of(4); round++) {
        struct ward ward = open_ward(none);
        struct findings *findings = examine(&ward);
        char *text = findings_text(findings);

        assert_string_equal(text, "0 problems on 0 of 64 nodes\n");
        free(text);
        findings_free(findings);
        close_ward(&ward);
    }
}

static void each_kind_of_fault_is_found_on_its_node(void **state)
{
    unsigned planted[NODES] = { 0 };
    struct findings *findings;
    struct ward ward;

    (void)state;
    for (int f = 0; f < FAULTS; f++)
        planted[2 * f + 1] = 1u << f;
    ward = open_ward(planted);
    findings = examine(&ward);
    compare(&ward, findings);
    for (int i = 0; i < findings->n; i++)
        assert_true(findings->list[i].advice[0] && findings->list[i].evidence[0]);
    findings_free(findings);
    close_ward(&ward);
}

/* May it be planted too? There are GPUs, NICs and pairs for so many. */
static bool fits(unsigned planted, int fault)
{
    static const int room[] = { 32, UNITS, UNITS, UNITS / 2 };
    int taken = 0;

    for (int f = 0; f < FAULTS; f++) {
        bool there = planted & 1u << f;

        if (there && (f == fault || faults[f].alone || faults[fault].alone))
            return false;
        taken += there && faults[f].takes == faults[fault].takes;
    }
    return taken < room[faults[fault].takes];
}

static void faults_drawn_at_random_are_found_and_no_others(void **state)
{
    int n_planted = 0, rounds = (int)some_of(ROUNDS);
    unsigned kinds = 0;

    (void)state;
    for (int round = 0; round < rounds; round++) {
        unsigned planted[NODES] = { 0 };
        struct findings *findings;
        struct ward ward;

        for (int i = 1 + draw(24); i > 0; i--) {
            int f = draw(FAULTS), node = draw(NODES / (1 + draw(8)));

            if (fits(planted[node], f)) {
                planted[node] |= 1u << f;
                kinds |= 1u << f;
                n_planted++;
            }
        }
        ward = open_ward(planted);
        findings = examine(&ward);
        compare(&ward, findings);
        findings_free(findings);
        close_ward(&ward);
    }
    printf("# %d faults in %d rounds\n", n_planted, rounds);
    /* In a few rounds not all need be drawn; each is planted once above. */
    assert_true(kinds == (1u << FAULTS) - 1 || rounds < ROUNDS);
}

static void the_report_has_evidence_advice_and_whom_to_exclude(void **state)
{
    unsigned planted[NODES] = { [7] = bit(dead_link), [12] = bit(across_sockets),
                                [40] = bit(no_gpudirect) };
    struct ward ward = open_ward(planted);
    struct findings *findings = examine(&ward);
    char *text = findings_text(findings);
    json_t *json = findings_to_json(findings);

    (void)state;
    assert_contains(text, "3 problems on 3 of 64 nodes\n");
    assert_contains(text, "NVLinks up: 17 of 18; 63 of 63 siblings have 18 of 18\n");
    assert_contains(text,
                    "none: no nvidia_peermem; 63 of 63 siblings have by nvidia_peermem\n");
    assert_contains(text, ": bound across sockets: may run on CPUs ");
    assert_contains(text, "--exclude=n007,n040\n");
    assert_int_equal(json_array_size(json_object_get(json, "exclude")), 2);
    json_decref(json);
    free(text);
    findings_free(findings);
    close_ward(&ward);
}

/* Their file, written and given to tasuki topo --check. */
static void the_program_finds_the_same_in_a_file_of_the_nodes(void **state)
{
    unsigned planted[NODES] = { 0 };
    const char *program = getenv("TASUKI");
    char *top = unit_directory(), *path = mem_printf("%s/topo.json", top), *command, *text;
    char *output = mem_new(1 << 16, 1);
    struct err err = { 0 };
    struct findings *findings;
    struct cluster *cluster;
    struct ward ward;
    json_t *json;
    FILE *pipe;
    int status;

    (void)state;
    for (int i = 0; i < 12; i++)
        planted[draw(NODES)] = 1u << draw(FAULTS);
    ward = open_ward(planted);
    findings = examine(&ward);
    compare(&ward, findings);
    text = findings_text(findings);
    cluster = model_of_record(ward.record, "test", &err);
    json = cluster_to_json(cluster);
    json_object_set_new(json, "nodes", topo_record_to_json(ward.record));
    json_object_set(json, "tasks", ward.tasks);
    assert_int_equal(json_save(json, path, &err), 0);
    command = mem_printf("'%s' topo --check --input '%s'", program ? program : "./tasuki",
                         path);
    pipe = popen(command, "r");
    output[fread(output, 1, (1 << 16) - 1, pipe)] = '\0';
    status = WEXITSTATUS(pclose(pipe));
    unlink(path);
    rmdir(top);
    if (status != 126 && status != 127) {       /* a foreign machine's does not run here */
        assert_int_equal(status, 3);
        assert_string_equal(output, text);
    }
    json_decref(json);
    cluster_free(cluster);
    findings_free(findings);
    close_ward(&ward);
    free(path);
    free(command);
    free(output);
    free(text);
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
    findings = topo_check(record, NULL, NULL, NULL, &err);
    assert_int_equal(findings->n, 0);
    findings_free(findings);
    topo_record_free(record);
}

/* They are looked at once, but for what is each one's own. */
static void nodes_of_one_kind_keep_what_is_their_own(void **state)
{
    static const char *const expected[] = {
        "n002: GPU1: clocks are throttled: reasons 0x40, 502 of 1980 MHz",
        "n003: GPU1: clocks are throttled: reasons 0x40, 503 of 1980 MHz",
        "n005: memory: ",
        "n006: a GPU does not answer: NVML's GPU 4 is lost",
    };
    struct topo_record *record = topo_record_new();
    struct findings *findings;
    struct err err = { 0 };
    char *text;

    (void)state;
    for (int i = 0; i < 8; i++) {
        struct topo_node *node = recorded_machine("hgx-h100");

        topo_node_set_text(&node->host, (const char[]){ 'n', '0', '0', (char)('0' + i), 0 });
        node->memory *= i == 5 ? 0.9 : 1 - 0.001 * i;
        node->gpus[1].clock = 500 + i;
        node->gpus[1].max_clock = 1980;
        node->gpus[1].throttle = i == 2 || i == 3 ? TOPO_THROTTLE_HW_THERMAL
                                                  : TOPO_THROTTLE_IDLE;
        if (i == 6)
            topo_node_note(node, "NVML's GPU 4 is lost");
        assert_int_equal(topo_record_add_node(record, node, &err), 0);
        topo_node_free(node);
    }
    assert_int_equal(topo_record_kinds(record), 2);
    findings = topo_check(record, NULL, NULL, NULL, &err);
    assert_non_null(findings);
    assert_int_equal(findings->n, 4);
    for (int i = 0; i < 4; i++) {
        const struct finding *f = &findings->list[i];

        text = mem_printf("%s: %s: %s", f->host, f->what, f->evidence);
        assert_int_equal(strncmp(text, expected[i], strlen(expected[i])), 0);
        free(text);
    }
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
    b->gpudirect = 0;
    topo_node_set_text(&b->gpudirect_by, "no nvidia_peermem");
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
        cmocka_unit_test(the_program_finds_the_same_in_a_file_of_the_nodes),
        cmocka_unit_test(what_was_not_collected_is_not_held_against_a_node),
        cmocka_unit_test(nodes_of_one_kind_keep_what_is_their_own),
        cmocka_unit_test(two_nodes_differ_in_what_is_told),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
