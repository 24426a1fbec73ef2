/* SPDX-License-Identifier: MIT */
/* Kernels of text: compiled by NVRTC, loaded and launched by the driver. Both are looked for when the
 * first is wanted: where one is missing there are no such kernels, and all else goes on.
 */
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/module_private.h"

#define THREADS 256
#define MOST_BLOCKS 4096
#define AT_A_TIME 8             /* elements of a thread, or twice as often half of that */
#define OPTIONS 3

typedef struct program_of_nvrtc *nvrtc_program;
typedef struct module_of_driver *driver_module;
typedef struct function_of_driver *driver_function;

/* nvrtc.h and cuda.h: results are enums, 0 is success. */
static struct {
    int (*nvrtcCreateProgram)(nvrtc_program *program, const char *text, const char *name, int n,
                              const char *const *headers, const char *const *names);
    int (*nvrtcCompileProgram)(nvrtc_program program, int n, const char *const *options);
    int (*nvrtcGetCUBINSize)(nvrtc_program program, size_t *size);
    int (*nvrtcGetCUBIN)(nvrtc_program program, char *code);
    int (*nvrtcGetProgramLogSize)(nvrtc_program program, size_t *size);
    int (*nvrtcGetProgramLog)(nvrtc_program program, char *log);
    int (*nvrtcDestroyProgram)(nvrtc_program *program);
    const char *(*nvrtcGetErrorString)(int result);
    int (*cuModuleLoadData)(driver_module *module, const void *code);
    int (*cuModuleUnload)(driver_module module);
    int (*cuModuleGetFunction)(driver_function *function, driver_module module, const char *name);
    int (*cuLaunchKernel)(driver_function function, unsigned x, unsigned y, unsigned z, unsigned threads_x,
                          unsigned threads_y, unsigned threads_z, unsigned shared, cudaStream_t stream,
                          void **parameters, void **extra);
    int (*cuGetErrorString)(int result, const char **text);
    char missing[128];
} api;

struct cuda_chain_kernel {
    struct cuda_device *device;
    driver_module module;
    driver_function function;
};

/* Of what is preloaded, or of this library. */
static bool find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);

    if (!symbol && library)
        symbol = dlsym(library, name);
    if (!symbol)
        snprintf(api.missing, sizeof(api.missing), "%s has no %s", library ? "a library" : "no library",
                 name);
    *(void **)function = symbol;
    return symbol != NULL;
}

static void find_all(void)
{
    char name[32];
    void *nvrtc, *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    snprintf(name, sizeof(name), "libnvrtc.so.%d", CUDART_VERSION / 1000);
    nvrtc = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!nvrtc)
        nvrtc = dlopen("libnvrtc.so", RTLD_NOW | RTLD_LOCAL);
#define FIND(library, name) && find(library, #name, &api.name)
    (void)(true FIND(nvrtc, nvrtcCreateProgram) FIND(nvrtc, nvrtcCompileProgram)
           FIND(nvrtc, nvrtcGetCUBINSize) FIND(nvrtc, nvrtcGetCUBIN) FIND(nvrtc, nvrtcGetProgramLogSize)
           FIND(nvrtc, nvrtcGetProgramLog) FIND(nvrtc, nvrtcDestroyProgram)
           FIND(nvrtc, nvrtcGetErrorString) FIND(driver, cuModuleLoadData) FIND(driver, cuModuleUnload)
           FIND(driver, cuModuleGetFunction) FIND(driver, cuLaunchKernel) FIND(driver, cuGetErrorString));
#undef FIND
}

static int look(const struct cuda_device *device, struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_all);
    return *api.missing ? err_set(err, "GPU %s: no kernels can be compiled: %s", device->address, api.missing)
                        : 0;
}

static int refuse(const struct cuda_device *device, const char *call, int result, struct err *err)
{
    const char *text = NULL;

    if (api.cuGetErrorString(result, &text) || !text)
        text = "unknown error";
    return err_set(err, "GPU %s: %s: %s", device->address, call, text);
}

/* The first line of what the compiler complains of. */
static void explain(const struct cuda_device *device, nvrtc_program program, int result, struct err *err)
{
    size_t size = 0;
    char *log = NULL;

    if (api.nvrtcGetProgramLogSize(program, &size) == 0 && size > 1) {
        log = mem_new(size + 1, 1);
        if (api.nvrtcGetProgramLog(program, log))
            log[0] = '\0';
    }
    err_set(err, "GPU %s: NVRTC: %s%s%.*s", device->address, api.nvrtcGetErrorString(result),
            log && *log ? ": " : "", log ? (int)strcspn(log, "\n") : 0, log ? log : "");
    free(log);
}

static void *take_code(nvrtc_program program, size_t *bytes)
{
    char *code;

    if (api.nvrtcGetCUBINSize(program, bytes) || *bytes == 0)
        return NULL;
    code = mem_new(*bytes, 1);
    if (api.nvrtcGetCUBIN(program, code) == 0)
        return code;
    free(code);
    return NULL;
}

static int architecture_of(const struct cuda_device *device, int *architecture, struct err *err)
{
    int major, minor;

    CUDA_CHECK(device, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device->number),
               err);
    CUDA_CHECK(device, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device->number),
               err);
    *architecture = 10 * major + minor;
    return 0;
}

void *cuda_chain_compile(struct cuda_device *device, const char *text, size_t *bytes, struct err *err)
{
    char architecture[40];
    const char *options[OPTIONS] = { architecture, "--std=c++17", "-w" };
    nvrtc_program program;
    void *code = NULL;
    int number = 0, result;

    if (look(device, err) < 0 || architecture_of(device, &number, err) < 0)
        return NULL;
    snprintf(architecture, sizeof(architecture), "--gpu-architecture=sm_%d", number);
    result = api.nvrtcCreateProgram(&program, text, "chain.cu", 0, NULL, NULL);
    if (result) {
        err_set(err, "GPU %s: NVRTC: %s", device->address, api.nvrtcGetErrorString(result));
        return NULL;
    }
    result = api.nvrtcCompileProgram(program, OPTIONS, options);
    if (result)
        explain(device, program, result, err);
    else if (!(code = take_code(program, bytes)))
        err_set(err, "GPU %s: NVRTC gives no code", device->address);
    api.nvrtcDestroyProgram(&program);
    return code;
}

static bool lies_within(uint64_t at, uint64_t n, uint64_t size, uint64_t bytes)
{
    return at <= bytes && (n == 0 || size <= (bytes - at) / n);
}

/* The driver goes by what is in the file, whatever its size: one that was cut short ends too early. */
static bool is_whole(const void *code, size_t bytes)
{
    Elf64_Ehdr head;
    Elf64_Shdr section;

    if (bytes < sizeof(head))
        return false;
    memcpy(&head, code, sizeof(head));
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        !lies_within(head.e_phoff, head.e_phnum, head.e_phentsize, bytes) ||
        !lies_within(head.e_shoff, head.e_shnum, head.e_shentsize, bytes) ||
        (head.e_shnum && head.e_shentsize < sizeof(section)))
        return false;
    for (int i = 0; i < head.e_shnum; i++) {
        memcpy(&section, (const char *)code + head.e_shoff + (size_t)i * head.e_shentsize, sizeof(section));
        if (section.sh_type != SHT_NOBITS && !lies_within(section.sh_offset, 1, section.sh_size, bytes))
            return false;
    }
    return true;
}

struct cuda_chain_kernel *cuda_chain_new(struct cuda_device *device, const void *code, size_t bytes,
                                         struct err *err)
{
    struct cuda_chain_kernel *k;
    int result;

    if (look(device, err) < 0)
        return NULL;
    if (!is_whole(code, bytes)) {
        err_set(err, "GPU %s: what was compiled is not whole", device->address);
        return NULL;
    }
    k = mem_new(1, sizeof(*k));
    k->device = device;
    result = api.cuModuleLoadData(&k->module, code);
    if (result)
        refuse(device, "cuModuleLoadData", result, err);
    else if ((result = api.cuModuleGetFunction(&k->function, k->module, CUDA_CHAIN_KERNEL))) {
        refuse(device, "cuModuleGetFunction", result, err);
        (void)api.cuModuleUnload(k->module);
    }
    if (!result)
        return k;
    free(k);
    return NULL;
}

void cuda_chain_free(struct cuda_chain_kernel *kernel)
{
    (void)api.cuModuleUnload(kernel->module);
    free(kernel);
}

int cuda_chain_run(struct cuda_stream *stream, const struct cuda_chain_kernel *kernel,
                   const struct cuda_chain *launch, struct err *err)
{
    struct cuda_chain argument = *launch;
    void *parameters[] = { &argument };
    int64_t blocks = launch->elements / AT_A_TIME / THREADS + 1;
    int result;

    blocks = blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks;
    result = api.cuLaunchKernel(kernel->function, (unsigned)blocks, 1, 1, THREADS, 1, 1, 0, stream->stream,
                                parameters, NULL);
    return result ? refuse(stream->device, "cuLaunchKernel of a chain", result, err) : 0;
}
