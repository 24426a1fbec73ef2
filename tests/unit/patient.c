/* SPDX-License-Identifier: MIT */
#include "patient.h"

#include "recorded.h"
#include "topology/node_read.h"

static uint64_t dice = 1;

int draw(int n)
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

struct topo_node *sibling(int number)
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

void start(struct patient *p, int number)
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

void dead_link(struct patient *p)
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

void no_gpudirect(struct patient *p)
{
    p->node->gpudirect = 0;
    topo_node_set_text(&p->node->gpudirect_by, "no nvidia_peermem");
    expect(p, "GPUDirect");
}

void forget_links(struct topo_gpu *gpu)
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

void across_sockets(struct patient *p)
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

const struct fault faults[] = {
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
_Static_assert(sizeof(faults) / sizeof(faults[0]) == FAULTS, "as many as there are");
