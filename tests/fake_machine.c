/* SPDX-License-Identifier: MIT */
/* Which GPUs the stand-in has, and how they are joined: the file that fake_nvml.c reads,
 * $TASUKI_FAKE_NVML, which may have these lines as well:
 *
 *     wire ADDRESS ADDRESS SECONDS BYTES/S    between two GPUs of a node, either way; "*": any
 *     wire network network SECONDS BYTES/S    between nodes: before those for any
 *     wire host host SECONDS BYTES/S          between a GPU and its host
 *     error CALL RESULT [N]                   of the GPU above it, or of all; N calls are good
 *     compute MAJOR.MINOR                     of the GPU above it, or of all; else 9.0
 *     code MAJOR                              the module has code for these alone
 *     connections N                           CUDA_DEVICE_MAX_CONNECTIONS is to say so when CUDA is
 *                                             first called, or it does not start
 *     loading EAGER                           the same of CUDA_MODULE_LOADING
 *     blocks N                                NCCL is to take no more of them for a message
 *
 * The first line that fits counts; without one bytes take no time. A RESULT of -1 kills the process.
 */
#include "config.h"

#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake_private.h"

struct fake_machine fake;
__thread int fake_device = -1;

static void read_compute(const char *line, int gpu)
{
    int major, minor;

    if (sscanf(line, "compute %d.%d", &major, &minor) != 2)
        return;
    for (int i = gpu < 0 ? 0 : gpu; i < (gpu < 0 ? MOST : gpu + 1); i++)
        fake.compute[i] = 10 * major + minor;
}

static void read_line(const char *line, int *gpu)
{
    struct wire *wire = &fake.wires[fake.n_wires];
    struct fault *fault = &fake.faults[fake.n_faults];

    if (sscanf(line, "gpu %31s", fake.gpus[*gpu + 1]) == 1)
        ++*gpu;
    else if (sscanf(line, "wire %31s %31s %lf %lf", wire->a, wire->b, &wire->latency,
                    &wire->bandwidth) == 4)
        fake.n_wires++;
    else if (sscanf(line, "error %63s %d %d", fault->call, &fault->result, &fault->good) >= 2) {
        fault->gpu = *gpu;
        fake.n_faults++;
    } else if (sscanf(line, "code %d", &fake.code) != 1 &&
               sscanf(line, "connections %d", &fake.connections) != 1 &&
               sscanf(line, "loading %7s", fake.loading) != 1 &&
               sscanf(line, "blocks %d", &fake.message_blocks) != 1)
        read_compute(line, *gpu);
}

/* As CUDA, which never looks again. */
static void read_environment(void)
{
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const char *loading = getenv("CUDA_MODULE_LOADING");

    if ((fake.connections && (!connections || atoi(connections) != fake.connections)) ||
        (fake.loading[0] && (!loading || strcmp(loading, fake.loading) != 0)))
        fake.faults[fake.n_faults++] = (struct fault){ "cudaGetDeviceCount", -1,
                                                       cudaErrorInitializationError, 0 };
}

static void read_machine(void)
{
    FILE *file = fopen(getenv("TASUKI_FAKE_NVML"), "re");
    char line[256];
    int last = -1;

    read_compute("compute 9.0", -1);
    while (file && fgets(line, sizeof(line), file) && last + 1 < MOST &&
           fake.n_wires + 1 < MOST && fake.n_faults + 1 < MOST)
        read_line(line, &last);
    if (file)
        fclose(file);
    fake.n_gpus = last + 1;
    fake.known = true;
    read_environment();
}

int fake_visible(int i)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");

    if (!fake.known)
        read_machine();
    if (!list)
        return i < fake.n_gpus ? i : -1;
    for (int at = 0; *list; at++) {
        char *end;
        long gpu = strtol(list, &end, 10);

        if (end == list || gpu < 0 || gpu >= fake.n_gpus)
            break;
        if (at == i)
            return (int)gpu;
        list = *end ? end + 1 : end;
    }
    return -1;
}

/* Of the MPI that a program on this machine would have. */
int MPIX_Query_cuda_support(void);
int MPIX_Query_cuda_support(void)
{
    return 1;
}

int fake_planted(const char *call)
{
    for (int i = 0; i < fake.n_faults; i++) {
        struct fault *fault = &fake.faults[i];

        if (strcmp(fault->call, call) != 0 || (fault->gpu >= 0 && fault->gpu != fake_device) ||
            fault->good-- > 0)
            continue;
        if (fault->result < 0)
            raise(SIGKILL);
        fake.failed = true;
        return fault->result;
    }
    return 0;
}

static bool fits(const char *pattern, const char *word)
{
    return strcmp(pattern, word) == 0 || strcmp(pattern, "*") == 0;
}

double fake_seconds(const char *a, const char *b, size_t bytes)
{
    for (int i = 0; i < fake.n_wires; i++) {
        const struct wire *w = &fake.wires[i];

        if ((fits(w->a, a) && fits(w->b, b)) || (fits(w->a, b) && fits(w->b, a)))
            return w->latency + (double)bytes / w->bandwidth;
    }
    return 0;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    for (*count = 0; fake_visible(*count) >= 0;)
        ++*count;
    MAY_FAIL(cudaError_t);
    return *count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    int gpu = fake_visible(device);

    MAY_FAIL(cudaError_t);
    if (gpu < 0)
        return cudaErrorInvalidDevice;
    snprintf(text, (size_t)size, "%s", fake.gpus[gpu]);
    for (char *c = text; *c; c++)       /* as CUDA writes it */
        *c = (char)(*c >= 'a' && *c <= 'f' ? *c - 'a' + 'A' : *c);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *address)
{
    MAY_FAIL(cudaError_t);
    for (*device = 0; fake_visible(*device) >= 0; ++*device)
        if (strcmp(fake.gpus[fake_visible(*device)], address) == 0)
            return cudaSuccess;
    return cudaErrorInvalidValue;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    MAY_FAIL(cudaError_t);
    if (fake_visible(device) < 0)
        return cudaErrorInvalidDevice;
    memset(p, 0, sizeof(*p));
    snprintf(p->name, sizeof(p->name), "Fake GPU");
    p->major = fake.compute[fake_visible(device)] / 10;
    p->minor = fake.compute[fake_visible(device)] % 10;
    p->multiProcessorCount = 2;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    MAY_FAIL(cudaError_t);
    if (fake_visible(device) < 0)
        return cudaErrorInvalidDevice;
    *value = fake.compute[fake_visible(device)] / 10;
    if (attribute == cudaDevAttrComputeCapabilityMajor)
        return cudaSuccess;
    *value = fake.compute[fake_visible(device)] % 10;
    return attribute == cudaDevAttrComputeCapabilityMinor ? cudaSuccess : cudaErrorInvalidValue;
}
