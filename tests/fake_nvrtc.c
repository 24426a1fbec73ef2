/* SPDX-License-Identifier: MIT */
/* NVRTC and the driver's modules: the host's C++ compiler makes a library of the text, which is loaded. */
#include "config.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fake_private.h"

#define FAILED 6                        /* NVRTC_ERROR_COMPILATION */
#define INVALID_IMAGE 200               /* CUDA_ERROR_INVALID_IMAGE */
#define NOT_FOUND 500                   /* CUDA_ERROR_NOT_FOUND */

struct program {
    char *text, *code;
    size_t bytes;
};

struct module {
    void *library;
    struct kernel kernel;
};

int nvrtcCreateProgram(struct program **program, const char *text, const char *name, int n,
                       const char *const *headers, const char *const *names);
int nvrtcCompileProgram(struct program *program, int n, const char *const *options);
int nvrtcGetCUBINSize(struct program *program, size_t *size);
int nvrtcGetCUBIN(struct program *program, char *code);
int nvrtcGetProgramLogSize(struct program *program, size_t *size);
int nvrtcGetProgramLog(struct program *program, char *log);
int nvrtcDestroyProgram(struct program **program);
const char *nvrtcGetErrorString(int result);
int cuModuleLoadData(struct module **module, const void *code);
int cuModuleUnload(struct module *module);
int cuModuleGetFunction(struct kernel **function, struct module *module, const char *name);
int cuLaunchKernel(struct kernel *function, unsigned x, unsigned y, unsigned z, unsigned threads_x,
                   unsigned threads_y, unsigned threads_z, unsigned shared, cudaStream_t stream,
                   void **parameters, void **extra);
int cuGetErrorString(int result, const char **text);

int nvrtcCreateProgram(struct program **program, const char *text, const char *name, int n,
                       const char *const *headers, const char *const *names)
{
    (void)name, (void)n, (void)headers, (void)names;
    ALONE;
    *program = calloc(1, sizeof(**program));
    (*program)->text = strdup(text);
    return 0;
}

/* No program but this is to run on the stand-in. */
static int run_compiler(const char *folder)
{
    static const char compile[] = "cd '%s' && " FAKE_NVRTC " -c -o chain.o chain.cc && "
                                  "${CXX:-c++} -shared -nostdlib -o chain.so chain.o -lm -lc";
    char command[4096];
    int status = 0;
    pid_t child;

    if (snprintf(command, sizeof(command), compile, folder) >= (int)sizeof(command))
        return -1;
    child = fork();
    if (child == 0) {
        unsetenv("LD_PRELOAD");
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    if (child > 0 && waitpid(child, &status, 0) == child && status == 0)
        return 0;
    if (child > 0)
        fprintf(stderr, "fake GPU: the compiler ended with status 0x%x\n", (unsigned)status);
    else
        perror("fake GPU: no compiler can be started");
    return -1;
}

static bool write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    return file && fputs(text, file) >= 0 && fclose(file) == 0;
}

static bool read_code(const char *path, struct program *program)
{
    FILE *file = fopen(path, "r");
    long size;

    if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) <= 0 || fseek(file, 0, SEEK_SET))
        return false;
    program->bytes = (size_t)size;
    program->code = malloc(program->bytes);
    return program->code && fread(program->code, 1, program->bytes, file) == program->bytes &&
           fclose(file) == 0;
}

int nvrtcCompileProgram(struct program *program, int n, const char *const *options)
{
    char folder[] = "/tmp/fake-nvrtc-XXXXXX", path[64], left[4][64];
    static const char *const names[] = { "chain.cc", "chain.o", "chain.so" };
    bool good;

    (void)options;
    MAY_FAIL(int);
    if (n < 1 || !mkdtemp(folder))
        return FAILED;
    snprintf(path, sizeof(path), "%s/chain.cc", folder);
    good = write_text(path, program->text) && run_compiler(folder) == 0;
    snprintf(path, sizeof(path), "%s/chain.so", folder);
    good = good && read_code(path, program);
    for (int i = 0; i < 3; i++) {
        snprintf(left[i], sizeof(left[i]), "%s/%s", folder, names[i]);
        (void)unlink(left[i]);
    }
    (void)rmdir(folder);
    return good ? 0 : FAILED;
}

int nvrtcGetCUBINSize(struct program *program, size_t *size)
{
    ALONE;
    *size = program->bytes;
    return 0;
}

int nvrtcGetCUBIN(struct program *program, char *code)
{
    ALONE;
    memcpy(code, program->code, program->bytes);
    return 0;
}

int nvrtcGetProgramLogSize(struct program *program, size_t *size)
{
    (void)program;
    *size = 1;
    return 0;
}

int nvrtcGetProgramLog(struct program *program, char *log)
{
    (void)program;
    *log = '\0';
    return 0;
}

int nvrtcDestroyProgram(struct program **program)
{
    ALONE;
    free((*program)->text);
    free((*program)->code);
    free(*program);
    *program = NULL;
    return 0;
}

const char *nvrtcGetErrorString(int result)
{
    return result == FAILED ? "NVRTC_ERROR_COMPILATION" : "NVRTC error";
}

int cuGetErrorString(int result, const char **text)
{
    *text = result == INVALID_IMAGE ? "device kernel image is invalid" : "an error";
    return 0;
}

/* A library ends with the table of its sections. */
static size_t size_of(const void *code)
{
    Elf64_Ehdr head;

    memcpy(&head, code, sizeof(head));
    return memcmp(head.e_ident, ELFMAG, SELFMAG) == 0
               ? head.e_shoff + (size_t)head.e_shnum * head.e_shentsize : 0;
}

int cuModuleLoadData(struct module **module, const void *code)
{
    size_t bytes = size_of(code);
    char path[] = "/tmp/fake-module-XXXXXX";    /* of its own: dlopen() knows names again */
    void *library = NULL;
    int fd;

    MAY_FAIL(int);
    if (!bytes || (fd = mkstemp(path)) < 0)
        return INVALID_IMAGE;
    if (write(fd, code, bytes) == (ssize_t)bytes)
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(fd);
    (void)unlink(path);
    if (!library) {
        fprintf(stderr, "fake GPU: %s\n", dlerror());
        return INVALID_IMAGE;
    }
    *module = calloc(1, sizeof(**module));
    (*module)->library = library;
    return 0;
}

/* What is under way may still run in it. */
int cuModuleUnload(struct module *module)
{
    ALONE;
    fake_finish_all();
    dlclose(module->library);
    free(module);
    return 0;
}

int cuModuleGetFunction(struct kernel **function, struct module *module, const char *name)
{
    struct kernel *k = &module->kernel;
    const size_t *bytes;
    char sized[128];

    MAY_FAIL(int);
    snprintf(sized, sizeof(sized), "%s_bytes", name);
    bytes = dlsym(module->library, sized);
    *(void **)&k->run = dlsym(module->library, name);
    if (!bytes || !k->run)
        return NOT_FOUND;
    k->bytes = *bytes;
    snprintf(k->name, sizeof(k->name), "%s", name);
    *function = k;
    return 0;
}

int cuLaunchKernel(struct kernel *function, unsigned x, unsigned y, unsigned z, unsigned threads_x,
                   unsigned threads_y, unsigned threads_z, unsigned shared, cudaStream_t stream,
                   void **parameters, void **extra)
{
    dim3 blocks = { x, y, z }, threads = { threads_x, threads_y, threads_z };

    (void)extra;
    MAY_FAIL(int);
    return (int)fake_launch(function, blocks, threads, parameters[0], shared, stream);
}
