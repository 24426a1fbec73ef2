/* SPDX-License-Identifier: MIT */
/* Faults planted among 64 nodes with 8 GPUs, 8 NICs and 8 tasks each: just they are found. */
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
#define UNITS 8         /* GPUs, NICs and tasks of a node */
#define ROUNDS 16

static uint64_t dice = 1;

static int draw(int n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (int)((dice >> 33) % (uint64_t)n);
}

static void shuffle(void *list, int n, size_t size)
{
    char *a = list, spare[512];

    assert_true(size <= sizeof(spare));
    for (int i = n - 1; i > 0; i--) {
        int j = draw(i + 1);

        memcpy(spare, a + (size_t)i * size, size);
        memmove(a + (size_t)i * size, a + (size_t)j * size, size);
        memcpy(a + (size_t)j * size, spare, size);
    }
}

/* A node on its way into the record: what is planted, and what is to be found. */
struct patient {
    struct topo_node *node;
    struct bound {
        char cpus[48], visible[16], shown[16];
    } tasks[UNITS];
    int gpus[UNITS], nics[UNITS];   /* each fault takes one of its own */
    int pairs[UNITS / 2];           /* of tasks on the same socket */
    int n_gpus, n_nics, n_pairs;    /* taken */
    int gone_gpus, gone_nics;       /* behind the last of the node, until it is freed */
    int n_expected;
    char expected[32][64];
};

static void expect(struct patient *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void expect(struct patient *p, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(p->expected[p->n_expected++], sizeof(p->expected[0]), format, args);
    va_end(args);
}

/* Buses are counted otherwise; a firmware may. */
static void move_bus(char **address, unsigned by)
{
    unsigned domain, bus, device, function;
    char text[32];

    if (sscanf(*address, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
        return;
    snprintf(text, sizeof(text), "%04x:%02x:%02x.%x", domain, bus + by, device, function);
    topo_node_set_text(address, text);
}

static void enumerate_otherwise(struct topo_node *node)
{
    unsigned by = (unsigned)draw(8);
    char name[16];

    for (int i = 0; i < node->n_pcis; i++)
        move_bus(&node->pcis[i].address, by);
    for (int i = 0; i < node->n_gpus; i++)
        move_bus(&node->gpus[i].address, by);
    for (int i = 0; i < node->n_nics; i++)
        move_bus(&node->nics[i].address, by);
    shuffle(node->nics, node->n_nics, sizeof(*node->nics));
    shuffle(node->numas, node->n_numas, sizeof(*node->numas));
    shuffle(node->said, node->n_said, sizeof(*node->said));
    for (int i = 0; i < node->n_nics; i++) {
        snprintf(name, sizeof(name), "mlx5_%d", i);
        topo_node_set_text(&node->nics[i].name, name);
    }
    for (int i = 0; i < node->n_gpus; i++)
        shuffle(node->gpus[i].links, node->gpus[i].n_links, sizeof(*node->gpus[i].links));
}

/* What healthy siblings do not share: serials, clocks, some memory, the order of things. */
static struct topo_node *sibling(int number)
{
    struct topo_node *node = recorded_machine("hgx-h100");
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
    enumerate_otherwise(node);
    for (int i = 0; i < node->n_nics; i++) {
        node->nics[i].lid = draw(0xc000);
        snprintf(text, sizeof(text), "0000:0000:00c0:%04x", (unsigned)draw(65536));
        topo_node_set_text(&node->nics[i].guid, text);
    }
    return node;
}

/* Task i has CPUs 14i to 14i+11 and GPU i; the two CPUs behind are nobody's. */
static void start(struct patient *p, int number)
{
    *p = (struct patient){ .node = sibling(number) };
    for (int i = 0; i < UNITS; i++) {
        snprintf(p->tasks[i].cpus, sizeof(p->tasks[i].cpus), "%d-%d", 14 * i, 14 * i + 11);
        snprintf(p->tasks[i].visible, sizeof(p->tasks[i].visible), "[%d]", i);
        p->gpus[i] = p->nics[i] = i;
    }
    for (int i = 0; i < UNITS / 2; i++)
        p->pairs[i] = 2 * i;
    shuffle(p->gpus, UNITS, sizeof(int));
    shuffle(p->nics, UNITS, sizeof(int));
    shuffle(p->pairs, UNITS / 2, sizeof(int));
}

static struct topo_gpu *next_gpu(struct patient *p, int *index)
{
    *index = p->gpus[p->n_gpus++ % UNITS];
    return &p->node->gpus[*index];
}

static int compare_nics(const void *a, const void *b)
{
    return strcmp((*(struct topo_nic *const *)a)->address,
                  (*(struct topo_nic *const *)b)->address);
}

/* By its rail, which is the place of its address. */
static struct topo_nic *next_nic(struct patient *p, int *rail)
{
    struct topo_nic *nics[UNITS];

    *rail = p->nics[p->n_nics++ % UNITS];
    for (int i = 0; i < UNITS; i++)
        nics[i] = &p->node->nics[i];
    qsort(nics, UNITS, sizeof(*nics), compare_nics);
    return nics[*rail];
}

/* The first of two tasks of a socket. */
static int next_pair(struct patient *p)
{
    return p->pairs[p->n_pairs++ % (UNITS / 2)];
}

static void dead_link(struct patient *p)
{
    int i;

    next_gpu(p, &i)->links[draw(18)].up = 0;
    expect(p, "GPU%d: NVLinks up", i);
}

static void missing_link(struct patient *p)
{
    int i;
    struct topo_gpu *gpu = next_gpu(p, &i);

    free(gpu->links[--gpu->n_links].address);
    expect(p, "GPU%d: NVLinks up", i);
}

static void slow_link(struct patient *p)
{
    int i;

    next_gpu(p, &i)->links[draw(18)].bandwidth /= 2;
    expect(p, "GPU%d: slowest NVLink", i);
}

static void slow_port(struct patient *p)
{
    int i;
    struct topo_nic *nic = next_nic(p, &i);

    nic->bandwidth /= 4;
    topo_node_set_text(&nic->rate, "100 Gb/sec (1X NDR)");
    expect(p, "NIC%d: rate", i);
}

static void dead_port(struct patient *p)
{
    int i;

    topo_node_set_text(&next_nic(p, &i)->state, "DOWN");
    expect(p, "NIC%d: state", i);
}

static void narrow_nic(struct patient *p)
{
    int i;

    next_nic(p, &i)->pcie_width = 8;
    expect(p, "NIC%d: PCIe width", i);
}

static void slow_slot(struct patient *p)
{
    int i;

    next_nic(p, &i)->pcie_speed = 16;
    expect(p, "NIC%d: PCIe speed", i);
}

static void narrow_gpu(struct patient *p)
{
    int i;

    next_gpu(p, &i)->pcie_width = 8;
    expect(p, "GPU%d: PCIe width", i);
}

static void hot_gpu(struct patient *p)
{
    int i;

    next_gpu(p, &i)->throttle |= draw(2) ? TOPO_THROTTLE_HW_THERMAL : TOPO_THROTTLE_POWER_BRAKE;
    expect(p, "GPU%d: clocks are throttled", i);
}

static void bad_memory(struct patient *p)
{
    int i;

    next_gpu(p, &i)->ecc_uncorrected = 1 + draw(9);
    expect(p, "GPU%d: uncorrected ECC errors", i);
}

static void worn_memory(struct patient *p)
{
    int i;

    next_gpu(p, &i)->remap_failure = 1;
    expect(p, "GPU%d: memory", i);
}

static void small_gpu(struct patient *p)
{
    int i;

    next_gpu(p, &i)->memory /= 2;
    expect(p, "GPU%d: memory", i);
}

static void no_gpudirect(struct patient *p)
{
    p->node->gpudirect = 0;
    topo_node_set_text(&p->node->gpudirect_by, "no nvidia_peermem");
    expect(p, "GPUDirect");
}

static void forget_links(struct topo_gpu *gpu)
{
    for (int i = 0; i < gpu->n_links; i++)
        free(gpu->links[i].address);
    gpu->n_links = -1;
}

static void lost_gpu(struct patient *p)
{
    int i;
    struct topo_gpu *gpu = next_gpu(p, &i);

    gpu->seen = false;
    forget_links(gpu);
    gpu->ecc = gpu->mig = gpu->pcie_width = -1;
    gpu->ecc_corrected = gpu->ecc_uncorrected = gpu->throttle = -1;
    expect(p, "GPUs that the driver shows");
}

static void silent_gpu(struct patient *p)
{
    int i;

    topo_gpu_fault(next_gpu(p, &i), "nvmlDeviceGetMemoryInfo: Unknown Error");
    expect(p, "GPU%d: the driver does not answer", i);
}

static void no_access(struct patient *p)
{
    int i;
    struct topo_gpu *gpu = next_gpu(p, &i);

    gpu->p2p[(i + 1) % UNITS] = 'D';
    expect(p, "GPU%d: access to other GPUs", i);
}

static void no_ecc(struct patient *p)
{
    int i;

    next_gpu(p, &i)->ecc = 0;
    expect(p, "GPU%d: ECC", i);
}

static void old_driver(struct patient *p)
{
    topo_node_set_text(&p->node->driver, "470.1");
    expect(p, "driver");
}

static void less_memory(struct patient *p)
{
    p->node->memory *= 0.9;
    expect(p, "memory");
}

static void fewer_cores(struct patient *p)
{
    p->node->cores--;
    expect(p, "cores");
}

static void dead_driver(struct patient *p)
{
    for (int i = 0; i < p->node->n_said; i++)
        if (strcmp(p->node->said[i].name, "nvml") == 0) {
            p->node->said[i].state = TOPO_FAILED;
            topo_node_set_text(&p->node->said[i].text, "Driver Not Loaded");
        }
    expect(p, "source nvml");
}

static void missing_gpu(struct patient *p)
{
    int i;
    struct topo_gpu *gpu = next_gpu(p, &i), gone = *gpu;

    memmove(gpu, gpu + 1, (size_t)(p->node->n_gpus - 1 - i) * sizeof(*gpu));
    p->node->gpus[p->node->n_gpus - 1] = gone;
    p->node->n_gpus--;
    p->gone_gpus++;
    for (int j = 0; j < p->node->n_gpus; j++) {     /* that healthy ones are all alike */
        p->node->gpus[j].p2p[p->node->n_gpus] = '\0';
        for (int k = 0; k < p->node->n_gpus; k++)
            p->node->gpus[j].p2p[k] = j == k ? 'X' : 'K';
    }
    for (int j = 0; j < UNITS; j++)     /* nobody gave out what is no longer there */
        p->tasks[j].visible[0] = '\0';
    expect(p, "GPUs");
    expect(p, "GPUs that the driver shows");
}

static void missing_nic(struct patient *p)
{
    int i;
    struct topo_nic *nic = next_nic(p, &i), gone = *nic;

    *nic = p->node->nics[--p->node->n_nics];
    p->node->nics[p->node->n_nics] = gone;
    p->gone_nics++;
    expect(p, "NICs");
}

static void across_sockets(struct patient *p)
{
    int i = next_pair(p);

    snprintf(p->tasks[i].cpus, sizeof(p->tasks[i].cpus), i < 4 ? "%d,%d" : "%2$d,%1$d",
             14 * i + 12, 14 * ((i + 4) % UNITS) + 13);
    expect(p, "%d: bound across sockets", i);
}

static void crowd(struct patient *p)
{
    int i = next_pair(p);

    snprintf(p->tasks[i].cpus, sizeof(p->tasks[i].cpus), "%d", 14 * i + 12);
    p->tasks[i + 1] = p->tasks[i];
    snprintf(p->tasks[i + 1].visible, sizeof(p->tasks[i].visible), "[%d]", i + 1);
    expect(p, "%d-%d: more tasks than CPUs", i, i + 1);
}

static void overlap(struct patient *p)
{
    int i = next_pair(p);

    snprintf(p->tasks[i + 1].cpus, sizeof(p->tasks[i].cpus), "%d,%d-%d", 14 * i + 11,
             14 * i + 14, 14 * i + 22);
    expect(p, "%d-%d: CPUs overlap", i, i + 1);
}

static void far_gpu(struct patient *p)
{
    int i = next_pair(p);

    snprintf(p->tasks[i].cpus, sizeof(p->tasks[i].cpus), "%d", 14 * ((i + 4) % UNITS) + 13);
    expect(p, "%d: CPUs are far from the GPU", i);
}

static void shared_gpu(struct patient *p)
{
    int i = next_pair(p);

    snprintf(p->tasks[i + 1].visible, sizeof(p->tasks[i].visible), "[%d]", i);
    expect(p, "%d-%d: tasks share a GPU", i, i + 1);
}

static void without_gpu(struct patient *p)
{
    int i = next_pair(p);

    strcpy(p->tasks[i].visible, "[]");
    expect(p, "%d: no GPU", i);
}

static void isolation(struct patient *p)
{
    for (int i = 0; i < UNITS; i++)
        snprintf(p->tasks[i].shown, sizeof(p->tasks[i].shown), "%d", i);
    expect(p, "0-7: GPUs are isolated");
}

enum taken { NODE, GPU, NIC, PAIR };

static const struct fault {
    void (*plant)(struct patient *p);
    enum taken takes;
    bool alone;             /* it hides others of the same node */
} faults[] = {
    { dead_link, GPU, false },          { missing_link, GPU, false },
    { slow_link, GPU, false },          { slow_port, NIC, false },
    { dead_port, NIC, false },          { narrow_nic, NIC, false },
    { slow_slot, NIC, false },          { narrow_gpu, GPU, false },
    { hot_gpu, GPU, false },            { bad_memory, GPU, false },
    { worn_memory, GPU, false },        { small_gpu, GPU, false },
    { no_gpudirect, NODE, false },      { lost_gpu, GPU, false },
    { silent_gpu, GPU, false },         { no_access, GPU, false },
    { no_ecc, GPU, false },             { old_driver, NODE, false },
    { less_memory, NODE, false },       { fewer_cores, NODE, false },
    { dead_driver, NODE, true },        { missing_gpu, GPU, true },
    { missing_nic, NIC, true },         { across_sockets, PAIR, false },
    { crowd, PAIR, false },             { overlap, PAIR, false },
    { far_gpu, PAIR, false },           { shared_gpu, PAIR, false },
    { without_gpu, PAIR, false },       { isolation, NODE, false },
};
#define FAULTS ((int)(sizeof(faults) / sizeof(faults[0])))

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
    for (int round = 0; round < 4; round++) {
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
    int n_planted = 0;
    unsigned kinds = 0;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
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
    printf("# %d faults in %d rounds\n", n_planted, ROUNDS);
    assert_int_equal(kinds, (1u << FAULTS) - 1);
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
