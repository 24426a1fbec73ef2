/* SPDX-License-Identifier: MIT */
/* What a profiler gives NVTX to load (NVTX_INJECTION64_PATH): writes "push NAME" and "pop" to the
 * file that TASUKI_FAKE_NVTX names, a line for each call.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t tables);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;
static _Thread_local int depth;

static int write_line(const char *word, const char *name)
{
    pthread_mutex_lock(&lock);
    fprintf(out, "%s%s\n", word, name);
    fflush(out);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int push(const char *name)
{
    write_line("push ", name);
    return depth++;
}

static int pop(void)
{
    write_line("pop", "");
    return --depth;
}

/* 1: it is loaded. */
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t tables)
{
    const NvtxExportTableCallbacks *callbacks = tables(NVTX_ETID_CALLBACKS);
    const char *path = getenv("TASUKI_FAKE_NVTX");
    NvtxFunctionTable functions;
    unsigned n = 0;

    out = path ? fopen(path, "w") : NULL;
    if (!out || !callbacks ||
        !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &n) ||
        n <= NVTX_CBID_CORE_RangePop)
        return 0;
    *functions[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *functions[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
#endif
