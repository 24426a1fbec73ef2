/* SPDX-License-Identifier: MIT */
/* A stand-in for NVIDIA's management library (TASUKI_NVML=…/fake_nvml.so): its GPUs are those
 * of the text file $TASUKI_FAKE_NVML, a word and its values on each line:
 *
 *     driver 535.1            gpu 0000:1b:00.0         (what follows is of this GPU)
 *     energy MILLIJOULES between two questions
 *     name … uuid … memory BYTES compute 9.0 pcie GEN WIDTH MAXGEN MAXWIDTH
 *     link N up|down [gpu|switch|cpu ADDRESS MEGABYTES]   mig 0|1   part UUID BYTES NAME
 *     ecc 0|1 CORRECTED UNCORRECTED   rows UNCORRECTED FAILED   clocks NOW MOST   throttle BITS
 *     p2p STATUS OTHER        error CALL RESULT       (of this GPU, or of all before the first)
 *
 * What a GPU has no line for is "not supported".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/nvml_api.h"

#define MOST 64
#define ERRORS 64

struct fake_link {
    int there, up, remote;
    unsigned speed;
    char address[32];
};

struct nvml_device {
    char address[32], name[NVML_TEXT], uuid[NVML_TEXT];
    unsigned long long memory, corrected, uncorrected, throttle, energy, used;
    int has_compute, major, minor, has_pcie, mig, has_ecc, ecc, has_rows, has_clocks,
        has_throttle, has_p2p;
    unsigned pcie[4], rows, row_failure, clock, max_clock;
    struct fake_link links[NVML_MAX_LINKS];
    int n_parts, p2p[MOST], n_errors;
    struct nvml_device *parts;
    struct { char call[64]; int result; } errors[ERRORS];
};

static struct nvml_device gpus[MOST], common;
static int n_gpus;
static char driver[NVML_TEXT];

static void read_link(struct nvml_device *gpu, const char *rest)
{
    char state[16] = "", remote[16] = "", address[32] = "";
    unsigned n = 0, speed = 0;

    if (sscanf(rest, "%u %15s %15s %31s %u", &n, state, remote, address, &speed) < 2 ||
        n >= NVML_MAX_LINKS)
        return;
    gpu->links[n] = (struct fake_link){
        .there = 1, .up = strcmp(state, "up") == 0, .speed = speed,
        .remote = strcmp(remote, "gpu") == 0   ? NVML_REMOTE_GPU
                  : strcmp(remote, "cpu") == 0 ? NVML_REMOTE_CPU
                                               : NVML_REMOTE_SWITCH,
    };
    memcpy(gpu->links[n].address, address, sizeof(address));
}

static void read_part(struct nvml_device *gpu, const char *rest)
{
    struct nvml_device *part;

    gpu->parts = realloc(gpu->parts, sizeof(*part) * (size_t)(gpu->n_parts + 1));
    part = &gpu->parts[gpu->n_parts++];
    memset(part, 0, sizeof(*part));
    sscanf(rest, "%95s %llu %95[^\n]", part->uuid, &part->memory, part->name);
}

static void read_figures(struct nvml_device *gpu, const char *word, const char *rest)
{
    int status, other;

    if (strcmp(word, "compute") == 0)
        gpu->has_compute = sscanf(rest, "%d.%d", &gpu->major, &gpu->minor) == 2;
    else if (strcmp(word, "pcie") == 0)
        gpu->has_pcie = sscanf(rest, "%u %u %u %u", &gpu->pcie[0], &gpu->pcie[1], &gpu->pcie[2],
                               &gpu->pcie[3]) == 4;
    else if (strcmp(word, "ecc") == 0)
        gpu->has_ecc = sscanf(rest, "%d %llu %llu", &gpu->ecc, &gpu->corrected,
                              &gpu->uncorrected) == 3;
    else if (strcmp(word, "rows") == 0)
        gpu->has_rows = sscanf(rest, "%u %u", &gpu->rows, &gpu->row_failure) == 2;
    else if (strcmp(word, "clocks") == 0)
        gpu->has_clocks = sscanf(rest, "%u %u", &gpu->clock, &gpu->max_clock) == 2;
    else if (strcmp(word, "throttle") == 0)
        gpu->has_throttle = sscanf(rest, "%llx", &gpu->throttle) == 1;
    else if (strcmp(word, "mig") == 0)
        gpu->mig = 1 + atoi(rest);
    else if (strcmp(word, "p2p") == 0 && sscanf(rest, "%d %d", &status, &other) == 2 &&
             other >= 0 && other < MOST) {
        gpu->has_p2p = 1;
        gpu->p2p[other] = status;
    }
}

static void read_line(char *line)
{
    struct nvml_device *gpu = n_gpus ? &gpus[n_gpus - 1] : &common;
    char *word = line + strspn(line, " "), *rest = word + strcspn(word, " \n");

    if (*rest)
        *rest++ = '\0';
    rest[strcspn(rest, "\n")] = '\0';
    if (strcmp(word, "gpu") == 0 && n_gpus < MOST)
        snprintf(gpus[n_gpus++].address, 32, "%s", rest);
    else if (strcmp(word, "driver") == 0)
        snprintf(driver, sizeof(driver), "%s", rest);
    else if (strcmp(word, "name") == 0)
        snprintf(gpu->name, sizeof(gpu->name), "%s", rest);
    else if (strcmp(word, "uuid") == 0)
        snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", rest);
    else if (strcmp(word, "memory") == 0)
        gpu->memory = strtoull(rest, NULL, 10);
    else if (strcmp(word, "energy") == 0)
        gpu->energy = strtoull(rest, NULL, 10);
    else if (strcmp(word, "link") == 0)
        read_link(gpu, rest);
    else if (strcmp(word, "part") == 0)
        read_part(gpu, rest);
    else if (strcmp(word, "error") == 0 && gpu->n_errors < ERRORS &&
             sscanf(rest, "%63s %d", gpu->errors[gpu->n_errors].call,
                    &gpu->errors[gpu->n_errors].result) == 2)
        gpu->n_errors++;
    else
        read_figures(gpu, word, rest);
}

static int planted_in(const struct nvml_device *gpu, const char *call)
{
    for (int i = 0; i < gpu->n_errors; i++)
        if (strcmp(gpu->errors[i].call, call) == 0)
            return gpu->errors[i].result;
    return NVML_OK;
}

static int planted(const struct nvml_device *gpu, const char *call)
{
    int result = planted_in(&common, call);

    return result ? result : planted_in(gpu, call);
}

#define MAY_FAIL(gpu)                                                                     \
    do {                                                                                  \
        int result_ = planted(gpu, __func__ + 4);   /* without "nvml" */                  \
        if (result_)                                                                      \
            return result_;                                                               \
    } while (0)

/* Its prototypes are those that the reader of the library believes in. */
#define PROTOTYPE(name, arguments) int nvml##name arguments;
NVML_CALLS(PROTOTYPE)
const char *nvmlErrorString(int result);

const char *nvmlErrorString(int result)
{
    static char text[32];

    if (result == NVML_GPU_IS_LOST)
        return "GPU is lost";
    if (result == NVML_DRIVER_NOT_LOADED)
        return "Driver Not Loaded";
    snprintf(text, sizeof(text), "error %d", result);
    return text;
}

int nvmlShutdown(void)
{
    for (int i = 0; i < n_gpus; i++)
        free(gpus[i].parts);
    n_gpus = 0;
    return NVML_OK;
}

int nvmlInit_v2(void)
{
    const char *path = getenv("TASUKI_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];

    n_gpus = 0;
    memset(gpus, 0, sizeof(gpus));
    memset(&common, 0, sizeof(common));
    if (!file)
        return NVML_DRIVER_NOT_LOADED;
    while (fgets(line, sizeof(line), file))
        read_line(line);
    fclose(file);
    if (planted(&common, "Init_v2"))
        nvmlShutdown();
    return planted(&common, "Init_v2");
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    MAY_FAIL(&common);
    snprintf(text, size, "%s", driver);
    return NVML_OK;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    MAY_FAIL(&common);
    *n = (unsigned)n_gpus;
    return NVML_OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device)
{
    if (index >= (unsigned)n_gpus)
        return NVML_NOT_FOUND;
    MAY_FAIL(&gpus[index]);
    *device = &gpus[index];
    return NVML_OK;
}

static int give_text(const char *value, char *text, unsigned size)
{
    if (!value[0])
        return NVML_NOT_SUPPORTED;
    snprintf(text, size, "%s", value);
    return NVML_OK;
}

int nvmlDeviceGetName(nvml_device gpu, char *text, unsigned size)
{
    MAY_FAIL(gpu);
    return give_text(gpu->name, text, size);
}

int nvmlDeviceGetTotalEnergyConsumption(nvml_device gpu, unsigned long long *energy);

/* Since the call before it has used as much as the line "energy" says. */
int nvmlDeviceGetTotalEnergyConsumption(nvml_device gpu, unsigned long long *energy)
{
    MAY_FAIL(gpu);
    if (gpu->energy == 0)
        return NVML_NOT_SUPPORTED;
    gpu->used += gpu->energy;
    *energy = gpu->used;
    return NVML_OK;
}

int nvmlDeviceGetUUID(nvml_device gpu, char *text, unsigned size)
{
    MAY_FAIL(gpu);
    return give_text(gpu->uuid, text, size);
}

/* As the library words addresses: eight digits of domain, capitals. */
static int give_address(const char *address, struct nvml_pci *pci)
{
    unsigned domain, bus, device, function;

    if (sscanf(address, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
        return NVML_NOT_SUPPORTED;
    memset(pci, 0, sizeof(*pci));
    pci->domain = domain;
    pci->bus = bus;
    pci->device = device;
    snprintf(pci->bus_id, sizeof(pci->bus_id), "%08X:%02X:%02X.%X", domain, bus, device,
             function);
    return NVML_OK;
}

int nvmlDeviceGetPciInfo_v3(nvml_device gpu, struct nvml_pci *pci)
{
    MAY_FAIL(gpu);
    return give_address(gpu->address, pci);
}

int nvmlDeviceGetMemoryInfo(nvml_device gpu, struct nvml_memory *memory)
{
    MAY_FAIL(gpu);
    *memory = (struct nvml_memory){ .total = gpu->memory, .unused = gpu->memory };
    return gpu->memory ? NVML_OK : NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetCudaComputeCapability(nvml_device gpu, int *major, int *minor)
{
    MAY_FAIL(gpu);
    *major = gpu->major;
    *minor = gpu->minor;
    return gpu->has_compute ? NVML_OK : NVML_NOT_SUPPORTED;
}

#define PCIE(name, index)                                                                 \
    int nvmlDeviceGet##name(nvml_device gpu, unsigned *value)                             \
    {                                                                                     \
        MAY_FAIL(gpu);                                                                    \
        *value = gpu->pcie[index];                                                        \
        return gpu->has_pcie ? NVML_OK : NVML_NOT_SUPPORTED;                              \
    }
PCIE(CurrPcieLinkGeneration, 0)
PCIE(CurrPcieLinkWidth, 1)
PCIE(MaxPcieLinkGeneration, 2)
PCIE(MaxPcieLinkWidth, 3)

int nvmlDeviceGetNvLinkState(nvml_device gpu, unsigned link, int *up)
{
    MAY_FAIL(gpu);
    if (link >= NVML_MAX_LINKS || !gpu->links[link].there)
        return NVML_NOT_SUPPORTED;
    *up = gpu->links[link].up;
    return NVML_OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device gpu, unsigned link, struct nvml_pci *pci)
{
    MAY_FAIL(gpu);
    return link < NVML_MAX_LINKS ? give_address(gpu->links[link].address, pci)
                                 : NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device gpu, unsigned link, int *type)
{
    MAY_FAIL(gpu);
    if (link >= NVML_MAX_LINKS || !gpu->links[link].up)
        return NVML_NOT_SUPPORTED;
    *type = gpu->links[link].remote;
    return NVML_OK;
}

int nvmlDeviceGetFieldValues(nvml_device gpu, int n, struct nvml_field *fields)
{
    MAY_FAIL(gpu);
    for (int i = 0; i < n; i++) {
        struct nvml_field *f = &fields[i];

        f->result = NVML_NOT_SUPPORTED;
        if (f->field == NVML_FIELD_SPEED && f->scope < NVML_MAX_LINKS &&
            gpu->links[f->scope].up) {
            f->result = NVML_OK;
            f->type = NVML_VALUE_UINT;
            f->value.number = gpu->links[f->scope].speed;
        }
    }
    return NVML_OK;
}

int nvmlDeviceGetMigMode(nvml_device gpu, unsigned *current, unsigned *pending)
{
    MAY_FAIL(gpu);
    *current = *pending = gpu->mig == 2;
    return gpu->mig ? NVML_OK : NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetMaxMigDeviceCount(nvml_device gpu, unsigned *n)
{
    MAY_FAIL(gpu);
    *n = 7;
    return NVML_OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(nvml_device gpu, unsigned index, nvml_device *device)
{
    MAY_FAIL(gpu);
    if (index >= (unsigned)gpu->n_parts)
        return NVML_NOT_FOUND;
    *device = &gpu->parts[index];
    return NVML_OK;
}

int nvmlDeviceGetEccMode(nvml_device gpu, int *current, int *pending)
{
    MAY_FAIL(gpu);
    *current = *pending = gpu->ecc;
    return gpu->has_ecc ? NVML_OK : NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetTotalEccErrors(nvml_device gpu, int kind, int counter,
                                unsigned long long *n)
{
    MAY_FAIL(gpu);
    (void)counter;
    *n = kind == NVML_ERROR_CORRECTED ? gpu->corrected : gpu->uncorrected;
    return NVML_OK;
}

int nvmlDeviceGetRemappedRows(nvml_device gpu, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed)
{
    MAY_FAIL(gpu);
    *corrected = *pending = 0;
    *uncorrected = gpu->rows;
    *failed = gpu->row_failure;
    return gpu->has_rows ? NVML_OK : NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetClockInfo(nvml_device gpu, int kind, unsigned *clock)
{
    MAY_FAIL(gpu);
    (void)kind;
    *clock = gpu->clock;
    return gpu->has_clocks ? NVML_OK : NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetMaxClockInfo(nvml_device gpu, int kind, unsigned *clock)
{
    MAY_FAIL(gpu);
    (void)kind;
    *clock = gpu->max_clock;
    return gpu->has_clocks ? NVML_OK : NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(nvml_device gpu, unsigned long long *bits)
{
    MAY_FAIL(gpu);
    *bits = gpu->throttle;
    return gpu->has_throttle ? NVML_OK : NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetP2PStatus(nvml_device gpu, nvml_device other, int kind, int *status)
{
    MAY_FAIL(gpu);
    (void)kind;
    *status = gpu->p2p[other - gpus];
    return gpu->has_p2p ? NVML_OK : NVML_NOT_SUPPORTED;
}
