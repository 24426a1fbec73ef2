/* SPDX-License-Identifier: MIT */
/* NVIDIA's GPUs by NVML. A call that fails leaves its figures "not known" and a line in the
 * GPU's faults; the other calls, and the other GPUs, go on.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/node_read.h"
#include "topology/nvml_api.h"

#define MOST_GPUS 256

struct nvml {
    void *library;
    const char *(*ErrorString)(int result);
#define DECLARE(name, arguments) int (*name) arguments;
    NVML_CALLS(DECLARE)
#undef DECLARE
};

/* One GPU on its way from the library to the node. */
struct visit {
    const struct nvml *nvml;
    nvml_device device;
    struct topo_gpu *gpu;
};

static const char *reason(const struct nvml *nvml, int result)
{
    const char *text = nvml->ErrorString ? nvml->ErrorString(result) : NULL;

    return text ? text : "unknown error";
}

/* Did it say? What the GPU or the driver does not support is no fault, and not known. */
static bool said(const struct visit *v, int result, const char *call)
{
    if (result == NVML_OK)
        return true;
    if (result != NVML_NOT_SUPPORTED && result != NVML_FUNCTION_NOT_FOUND &&
        result != NVML_NOT_FOUND)
        topo_gpu_fault(v->gpu, "nvml%s: %s", call, reason(v->nvml, result));
    return false;
}

/* Drivers older than a function lack its symbol. */
#define ASK(v, call, ...)                                                                 \
    ((v)->nvml->call && said(v, (v)->nvml->call((v)->device, __VA_ARGS__), #call))

static void read_identity(const struct visit *v)
{
    struct nvml_memory memory = { 0 };
    char text[NVML_TEXT] = "";
    int major = 0, minor = 0;

    if (ASK(v, DeviceGetName, text, sizeof(text)))
        topo_node_set_text(&v->gpu->name, text);
    if (ASK(v, DeviceGetUUID, text, sizeof(text)))
        topo_node_set_text(&v->gpu->uuid, text);
    if (ASK(v, DeviceGetMemoryInfo, &memory))
        v->gpu->memory = (double)memory.total;
    if (ASK(v, DeviceGetCudaComputeCapability, &major, &minor))
        v->gpu->compute = 10 * major + minor;
}

static void read_pcie(const struct visit *v)
{
    unsigned value = 0;

    if (ASK(v, DeviceGetCurrPcieLinkGeneration, &value))
        v->gpu->pcie_gen = (int)value;
    if (ASK(v, DeviceGetCurrPcieLinkWidth, &value))
        v->gpu->pcie_width = (int)value;
    if (ASK(v, DeviceGetMaxPcieLinkGeneration, &value))
        v->gpu->pcie_max_gen = (int)value;
    if (ASK(v, DeviceGetMaxPcieLinkWidth, &value))
        v->gpu->pcie_max_width = (int)value;
}

static double field_value(const struct visit *v, unsigned field, unsigned scope)
{
    struct nvml_field f = { .field = field, .scope = scope };

    if (!v->nvml->DeviceGetFieldValues ||
        v->nvml->DeviceGetFieldValues(v->device, 1, &f) != NVML_OK || f.result != NVML_OK)
        return 0;
    switch (f.type) {
    case NVML_VALUE_DOUBLE: return f.value.real;
    case NVML_VALUE_UINT: return f.value.number;
    case NVML_VALUE_ULONG: return (double)f.value.big;
    case NVML_VALUE_ULONGLONG: return (double)f.value.large;
    case NVML_VALUE_LONGLONG: return (double)f.value.integer;
    default: return 0;
    }
}

/* Newer drivers take the link as a scope, older ones have a field for each. */
static double link_bandwidth(const struct visit *v, unsigned link)
{
    double speed = field_value(v, NVML_FIELD_SPEED, link);

    if (speed <= 0 && link < 12)
        speed = field_value(v, link < 6 ? NVML_FIELD_SPEED_L0 + link
                                        : NVML_FIELD_SPEED_L6 + link - 6, 0);
    if (speed <= 0)
        speed = field_value(v, NVML_FIELD_SPEED_COMMON, 0);
    return speed > 0 ? speed * 1e6 : 0;
}

static void read_remote(const struct visit *v, struct topo_nvlink *link)
{
    struct nvml_pci pci = { .bus_id = "" };
    char address[32];
    int type = -1;

    if (ASK(v, DeviceGetNvLinkRemoteDeviceType, (unsigned)link->link, &type))
        link->remote = type == NVML_REMOTE_GPU      ? TOPO_REMOTE_GPU
                       : type == NVML_REMOTE_CPU    ? TOPO_REMOTE_CPU
                       : type == NVML_REMOTE_SWITCH ? TOPO_REMOTE_SWITCH
                                                    : TOPO_REMOTE_UNKNOWN;
    if (ASK(v, DeviceGetNvLinkRemotePciInfo_v2, (unsigned)link->link, &pci)) {
        pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
        if (topo_pci_address(pci.bus_id, address) == 0)
            topo_node_set_text(&link->address, address);
    }
}

/* Links that do not exist are "not supported" or "invalid"; one that cannot be asked may be. */
static void read_links(const struct visit *v)
{
    if (!v->nvml->DeviceGetNvLinkState)
        return;
    for (unsigned i = 0; i < NVML_MAX_LINKS; i++) {
        int up = 0, result = v->nvml->DeviceGetNvLinkState(v->device, i, &up);
        struct topo_nvlink *link;

        if (result == NVML_NOT_SUPPORTED || result == 2 || result == NVML_NOT_FOUND) {
            if (v->gpu->n_links < 0)
                v->gpu->n_links = 0;
            continue;
        }
        if (result != NVML_OK) {
            topo_gpu_fault(v->gpu, "nvmlDeviceGetNvLinkState: link %u: %s", i,
                           reason(v->nvml, result));
            if (v->gpu->n_links < 0)
                return;     /* the first fails: nothing is known of any */
        }
        link = topo_gpu_add_link(v->gpu, (int)i);
        link->up = result != NVML_OK ? -1 : up ? 1 : 0;
        if (link->up == 1) {
            link->bandwidth = link_bandwidth(v, i);
            read_remote(v, link);
        }
    }
}

static void read_mig(const struct visit *v)
{
    unsigned current = 0, pending = 0, n = 0;

    if (!ASK(v, DeviceGetMigMode, &current, &pending))
        return;
    v->gpu->mig = current ? 1 : 0;
    if (!current || !ASK(v, DeviceGetMaxMigDeviceCount, &n))
        return;
    for (unsigned i = 0; i < n && i < 64; i++) {
        nvml_device device = NULL;
        struct nvml_memory memory = { 0 };
        char uuid[NVML_TEXT] = "", name[NVML_TEXT] = "";
        struct topo_mig *mig;

        /* Slots that are not in use are "not found". */
        if (!ASK(v, DeviceGetMigDeviceHandleByIndex, i, &device))
            continue;
        if (!v->nvml->DeviceGetUUID ||
            !said(v, v->nvml->DeviceGetUUID(device, uuid, sizeof(uuid)), "DeviceGetUUID"))
            uuid[0] = '\0';
        mig = topo_gpu_add_mig(v->gpu, uuid);
        if (v->nvml->DeviceGetName &&
            said(v, v->nvml->DeviceGetName(device, name, sizeof(name)), "DeviceGetName"))
            topo_node_set_text(&mig->name, name);
        if (v->nvml->DeviceGetMemoryInfo &&
            said(v, v->nvml->DeviceGetMemoryInfo(device, &memory), "DeviceGetMemoryInfo"))
            mig->memory = (double)memory.total;
    }
}

static void read_ecc(const struct visit *v)
{
    unsigned corrected = 0, uncorrected = 0, pending = 0, failure = 0;
    unsigned long long count = 0;
    int current = 0, later = 0;

    if (ASK(v, DeviceGetEccMode, &current, &later))
        v->gpu->ecc = current ? 1 : 0;
    if (v->gpu->ecc == 1) {
        if (ASK(v, DeviceGetTotalEccErrors, NVML_ERROR_CORRECTED, NVML_SINCE_LOADED, &count))
            v->gpu->ecc_corrected = (int64_t)count;
        if (ASK(v, DeviceGetTotalEccErrors, NVML_ERROR_UNCORRECTED, NVML_SINCE_LOADED, &count))
            v->gpu->ecc_uncorrected = (int64_t)count;
    }
    if (ASK(v, DeviceGetRemappedRows, &corrected, &uncorrected, &pending, &failure)) {
        v->gpu->remapped_rows = uncorrected;
        v->gpu->remap_failure = failure ? 1 : 0;
    }
}

static void read_clocks(const struct visit *v)
{
    unsigned long long throttle = 0;
    unsigned clock = 0;

    if (ASK(v, DeviceGetClockInfo, NVML_CLOCK_SM, &clock))
        v->gpu->clock = (int)clock;
    if (ASK(v, DeviceGetMaxClockInfo, NVML_CLOCK_SM, &clock))
        v->gpu->max_clock = (int)clock;
    if (ASK(v, DeviceGetCurrentClocksThrottleReasons, &throttle))
        v->gpu->throttle = (int64_t)(throttle & INT64_MAX);
}

/* The PCI address of NVML's GPU 'index', which joins it with what others know; -1: even that
 * cannot be had.
 */
static int find_device(struct topo_node *node, const struct nvml *nvml, unsigned index,
                       nvml_device *device, char address[32])
{
    struct nvml_pci pci = { .bus_id = "" };
    const char *call = "DeviceGetHandleByIndex_v2";
    int result = nvml->DeviceGetHandleByIndex_v2(index, device);

    if (result == NVML_OK) {
        call = "DeviceGetPciInfo_v3";
        result = nvml->DeviceGetPciInfo_v3(*device, &pci);
    }
    pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
    if (result == NVML_OK && topo_pci_address(pci.bus_id, address) == 0)
        return 0;
    topo_node_note(node, "NVML's GPU %u is not described: nvml%s: %s", index, call,
                   result ? reason(nvml, result) : "no PCI address");
    return -1;
}

static void read_gpu(const struct visit *v, struct topo_node *node)
{
    int pci = topo_node_find_pci(node, v->gpu->address);

    v->gpu->seen = true;
    if (pci >= 0)
        v->gpu->numa = node->pcis[pci].numa;
    read_identity(v);
    read_pcie(v);
    read_links(v);
    read_mig(v);
    read_ecc(v);
    read_clocks(v);
}

static char p2p_letter(int status)
{
    static const char letters[] = "KCGIDN";

    return status >= 0 && status < (int)sizeof(letters) - 1 ? letters[status] : '?';
}

/* devices[i] is NULL where the library does not know GPU i. */
static void read_p2p(struct topo_node *node, const struct nvml *nvml, nvml_device *devices)
{
    if (!nvml->DeviceGetP2PStatus)
        return;
    for (int i = 0; i < node->n_gpus; i++) {
        struct visit v = { nvml, devices[i], &node->gpus[i] };
        char *letters = mem_new((size_t)node->n_gpus + 1, 1);

        for (int j = 0; j < node->n_gpus; j++) {
            int status = -1;

            letters[j] = i == j ? 'X' : '?';
            if (i != j && devices[i] && devices[j] &&
                ASK(&v, DeviceGetP2PStatus, devices[j], NVML_P2P_READ, &status))
                letters[j] = p2p_letter(status);
        }
        if (devices[i])
            topo_node_set_text(&node->gpus[i].p2p, letters);
        free(letters);
    }
}

static void read_gpus(struct topo_node *node, const struct nvml *nvml, unsigned n)
{
    char (*addresses)[32] = mem_new(n, sizeof(*addresses));
    nvml_device *found = mem_new(n, sizeof(*found)), *devices;

    for (unsigned i = 0; i < n; i++)
        if (find_device(node, nvml, i, &found[i], addresses[i]) == 0 &&
            topo_node_find_gpu(node, addresses[i]) < 0)
            topo_node_add_gpu(node, addresses[i]);
    topo_node_sort_gpus(node);
    devices = mem_new((size_t)node->n_gpus, sizeof(nvml_device));
    for (unsigned i = 0; i < n; i++) {
        int at = topo_node_find_gpu(node, addresses[i]);
        struct visit v = { nvml, found[i], at >= 0 ? &node->gpus[at] : NULL };

        if (at < 0)
            continue;
        devices[at] = found[i];
        read_gpu(&v, node);
    }
    read_p2p(node, nvml, devices);
    free(addresses);
    free(found);
    free(devices);
}

static int load(struct nvml *nvml, const char *path)
{
    *nvml = (struct nvml){ .library = dlopen(path, RTLD_NOW | RTLD_LOCAL) };
    if (!nvml->library)
        return -1;
    *(void **)&nvml->ErrorString = dlsym(nvml->library, "nvmlErrorString");
#define LOOK_UP(name, arguments) *(void **)&nvml->name = dlsym(nvml->library, "nvml" #name);
    NVML_CALLS(LOOK_UP)
#undef LOOK_UP
    return 0;
}

/* The library is open. */
static void ask(struct topo_node *node, const struct nvml *nvml)
{
    char version[NVML_TEXT] = "";
    unsigned n = 0;
    int result;

    if (!nvml->Init_v2 || !nvml->Shutdown || !nvml->DeviceGetCount_v2 ||
        !nvml->DeviceGetHandleByIndex_v2 || !nvml->DeviceGetPciInfo_v3) {
        topo_node_say(node, "nvml", TOPO_FAILED, "the library lacks functions that are needed");
        return;
    }
    result = nvml->Init_v2();
    if (result != NVML_OK) {
        topo_node_say(node, "nvml", TOPO_FAILED, "nvmlInit_v2: %s", reason(nvml, result));
        return;
    }
    result = nvml->DeviceGetCount_v2(&n);
    if (result != NVML_OK || n > MOST_GPUS) {
        topo_node_say(node, "nvml", TOPO_FAILED, "nvmlDeviceGetCount_v2: %s",
                      result ? reason(nvml, result) : "too many GPUs");
    } else {
        if (nvml->SystemGetDriverVersion &&
            nvml->SystemGetDriverVersion(version, sizeof(version)) == NVML_OK)
            topo_node_set_text(&node->driver, version);
        topo_node_say(node, "nvml", TOPO_USED, "driver %s", version[0] ? version : "not known");
        read_gpus(node, nvml, n);
    }
    nvml->Shutdown();
}

static int read_nvml(struct topo_node *node, const struct topo_input *input, struct err *err)
{
    struct nvml nvml;

    (void)err;
    if (!input->nvml || !*input->nvml)
        return 0;
    if (load(&nvml, input->nvml)) {
        topo_node_say(node, "nvml", TOPO_ABSENT, "%s cannot be opened", input->nvml);
        return 0;
    }
    ask(node, &nvml);
    dlclose(nvml.library);
    return 0;
}

const struct topo_source topo_source_nvml = { "nvml", read_nvml };
