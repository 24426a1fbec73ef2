/* SPDX-License-Identifier: MIT */
/* tasuki-cuda.so: graphs of cuDNN's backend API. */
#include "kernels/cuda/module_cudnn.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MOST_CONFIGS 128        /* those for tensor cores come first, dozens of them */
#define GENERATION 1            /* one more, where what a description stands for is asked for otherwise */

/* What cudnn_plan_of() was asked for. */
struct entry {
    struct entry *next;
    const struct cudnn_family *family;
    void *what;
    struct cudnn_plan plan;
};

struct cuda_cudnn {
    cudnnHandle_t handle;                   /* NULL: of a GPU that is not here */
    cudnnBackendDescriptor_t properties;    /* its, in place of the handle */
    struct entry *entries;
};

int cudnn_error(const struct cuda_device *device, cudnnStatus_t code, const char *call,
                struct err *err)
{
    char more[512] = "";

    cudnnGetLastErrorString(more, sizeof(more));
    return err_set(err, "GPU %s: %.*s: %s%s%s", device->address, (int)strcspn(call, "("), call,
                   cudnnGetErrorString(code), *more ? ": " : "", more);
}

int cudnn_open(struct cuda_device *device, struct err *err)
{
    cudnnStatus_t status;

    if (device->cudnn)
        return 0;
    device->cudnn = mem_new(1, sizeof(*device->cudnn));
    status = cudnnCreate(&device->cudnn->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        return 0;
    free(device->cudnn);
    device->cudnn = NULL;
    return cudnn_error(device, status, "cudnnCreate", err);
}

#if CUDNN_IMAGINES
int cudnn_imagine(struct cuda_device *device, const char *properties, struct err *err)
{
    cudnnBackendDescriptor_t *d;

    device->cudnn = mem_new(1, sizeof(*device->cudnn));
    d = &device->cudnn->properties;
    CUDNN_CHECK(device, cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, d), err);
    CUDNN_CHECK(device, cudnnBackendSetAttribute(*d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                 CUDNN_TYPE_CHAR, (int64_t)strlen(properties),
                                                 properties), err);
    CUDNN_CHECK(device, cudnnBackendFinalize(*d), err);
    return 0;
}
#endif

static void clear_entries(struct cuda_cudnn *cudnn)
{
    while (cudnn->entries) {
        struct entry *e = cudnn->entries;

        cudnn->entries = e->next;
        cudnn_clear(&e->plan);
        free(e->what);
        free(e);
    }
}

void cuda_cudnn_close(struct cuda_device *device)
{
    struct cuda_cudnn *cudnn = device->cudnn;

    if (!cudnn)
        return;
    cuda_conv_clear(device);
    clear_entries(cudnn);
    if (cudnn->properties)
        (void)cudnnBackendDestroyDescriptor(cudnn->properties);
    if (cudnn->handle)
        (void)cudnnDestroy(cudnn->handle);
    free(cudnn);
    device->cudnn = NULL;
}

cudnnHandle_t cudnn_handle(const struct cuda_device *device)
{
    return device->cudnn->handle;
}

/* What they were used for has ended: that a call fails now helps nobody. */
void cudnn_clear(struct cudnn_plan *p)
{
    for (int i = p->n_owned - 1; i >= 0; i--)
        (void)cudnnBackendDestroyDescriptor(p->owned[i]);
    free(p->owned);
}

/* Descriptors ------------------------------------------------------------------------------ */

static int create(struct cudnn_plan *p, cudnnBackendDescriptorType_t type,
                  cudnnBackendDescriptor_t *descriptor, struct err *err)
{
    CUDNN_CHECK(p->device, cudnnBackendCreateDescriptor(type, descriptor), err);
    *(cudnnBackendDescriptor_t *)mem_push((void **)&p->owned, &p->n_owned,
                                          sizeof(*p->owned)) = *descriptor;
    return 0;
}

static int set_all(const struct cudnn_plan *p, cudnnBackendDescriptor_t descriptor,
                   const struct cudnn_attribute *list, int n, struct err *err)
{
    for (int i = 0; i < n; i++)
        CUDNN_CHECK(p->device, cudnnBackendSetAttribute(descriptor, list[i].name, list[i].type,
                                                        list[i].n, list[i].values), err);
    return 0;
}

int cudnn_build(struct cudnn_plan *p, cudnnBackendDescriptorType_t type,
                const struct cudnn_attribute *list, int n, cudnnBackendDescriptor_t *descriptor,
                struct err *err)
{
    cudnnStatus_t code;

    if (create(p, type, descriptor, err) || set_all(p, *descriptor, list, n, err))
        return -1;
    code = cudnnBackendFinalize(*descriptor);
    p->unknown = CUDNN_STATUS_CATEGORY((int)code) == CUDNN_STATUS_NOT_SUPPORTED;
    return code == CUDNN_STATUS_SUCCESS
               ? 0
               : cudnn_error(p->device, code, "cudnnBackendFinalize", err);
}

int cudnn_build_tensor(struct cudnn_plan *p, const struct cudnn_tensor *tensor,
                       cudnnBackendDescriptor_t *descriptor, struct err *err)
{
    int64_t alignment = CUDNN_ALIGNMENT;
    const struct cudnn_attribute list[] = {
        { CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &tensor->type },
        { CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, tensor->rank, tensor->dim },
        { CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, tensor->rank, tensor->stride },
        { CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &tensor->name },
        { CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment },
        { CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &tensor->is_virtual },
        { CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &tensor->by_value },
    };

    return cudnn_build(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR, list, COUNT(list), descriptor, err);
}

cudnnBackendDescriptor_t cudnn_add(struct cudnn_graph *g, cudnnBackendDescriptorType_t type,
                                   const struct cudnn_attribute *list, int n)
{
    cudnnBackendDescriptor_t made = NULL;

    g->failed = g->failed || cudnn_build(g->plan, type, list, n, &made, g->err);
    return made;
}

cudnnBackendDescriptor_t cudnn_add_tensor(struct cudnn_graph *g, const struct cudnn_tensor *tensor)
{
    cudnnBackendDescriptor_t made = NULL;

    g->failed = g->failed || cudnn_build_tensor(g->plan, tensor, &made, g->err);
    return made;
}

/* Choosing --------------------------------------------------------------------------------- */

static bool is_compiled_now(cudnnBackendDescriptor_t engine)
{
    cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n = 0;

    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                 COUNT(notes), &n, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < n && i < COUNT(notes); i++)
        if (notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
            return true;
    return false;
}

static int config_fits(struct cudnn_plan *p, const struct cudnn_choice *choice,
                       cudnnBackendDescriptor_t config, bool *fits, struct err *err)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine;
    int64_t n = 0;

    if (create(p, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine, err))
        return -1;
    /* What says nothing of itself is not taken. */
    *fits = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                     &engine) == CUDNN_STATUS_SUCCESS &&
            cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                     CUDNN_TYPE_NUMERICAL_NOTE, COUNT(notes), &n,
                                     notes) == CUDNN_STATUS_SUCCESS;
    *fits = *fits && (choice->compiles || !is_compiled_now(engine));
    if (!*fits)
        return 0;
    p->on_tensor_cores = false;
    for (int64_t i = 0; i < n && i < COUNT(notes); i++) {
        *fits &= choice->note_fits(choice->what, notes[i]);
        p->on_tensor_cores |= notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    }
    return 0;
}

/* That a plan is for: the device of the handle, or the one that its properties describe. */
static struct cudnn_attribute device_of(const struct cudnn_plan *p)
{
    const struct cuda_cudnn *cudnn = p->device->cudnn;

#if CUDNN_IMAGINES
    if (cudnn->properties)
        return (struct cudnn_attribute){ CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &cudnn->properties };
#endif
    return (struct cudnn_attribute){ CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                     &cudnn->handle };
}

/* The plan that follows from one attribute. An engine that refuses, for whatever reason, is not the one. */
static int try_plan(struct cudnn_plan *p, const struct cudnn_attribute *from, int64_t workspace_limit,
                    struct err *err)
{
    cudnnBackendDescriptor_t execution;
    const struct cudnn_attribute list[] = { device_of(p), *from };
    int64_t n = 0, workspace = 0;

    if (create(p, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &execution, err) ||
        set_all(p, execution, list, COUNT(list), err))
        return -1;
    if (cudnnBackendFinalize(execution) != CUDNN_STATUS_SUCCESS)
        return 0;
    if (cudnnBackendGetAttribute(execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &n, &workspace) != CUDNN_STATUS_SUCCESS ||
        workspace < 0 || workspace > workspace_limit)
        return 0;
    p->workspace = workspace;
    p->execution = execution;
    return 0;
}

static int try_config(struct cudnn_plan *p, const struct cudnn_choice *choice,
                      cudnnBackendDescriptor_t config, struct err *err)
{
    const struct cudnn_attribute from = { CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config };
    bool fits = false;

    if (config_fits(p, choice, config, &fits, err))
        return -1;
    return fits ? try_plan(p, &from, choice->workspace_limit, err) : 0;
}

static int try_mode(struct cudnn_plan *p, const struct cudnn_choice *choice,
                    cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode, struct err *err)
{
    cudnnBackendDescriptor_t heuristics, configs[MOST_CONFIGS];
    const struct cudnn_attribute list[] = {
        { CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph },
        { CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode },
#if CUDNN_IMAGINES
        { CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
          &p->device->cudnn->properties },
#endif
    };
    int used = p->device->cudnn->properties ? COUNT(list) : 2;
    cudnnStatus_t code;
    int64_t n = 0;

    if (cudnn_build(p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, list, used, &heuristics, err))
        return -1;
    for (int i = 0; i < MOST_CONFIGS; i++)
        if (create(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i], err))
            return -1;
    code = cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_CONFIGS, &n, configs);
    p->unknown = CUDNN_STATUS_CATEGORY((int)code) == CUDNN_STATUS_NOT_SUPPORTED;
    if (p->unknown)
        return 0;
    if (code != CUDNN_STATUS_SUCCESS)
        return cudnn_error(p->device, code, "cudnnBackendGetAttribute", err);
    for (int64_t i = 0; i < n && i < MOST_CONFIGS && !p->execution; i++)
        if (try_config(p, choice, configs[i], err))
            return -1;
    return 0;
}

int cudnn_choose(struct cudnn_plan *p, const cudnnBackendDescriptor_t *operations, int n,
                 const struct cudnn_choice *choice, struct err *err)
{
    cudnnBackendDescriptor_t graph;
    const struct cudnn_attribute list[] = {
        { CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, operations },
        { CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->device->cudnn->handle },
    };
    int used = p->device->cudnn->handle ? COUNT(list) : 1;

    if (cudnn_build(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, list, used, &graph, err) ||
        (try_mode(p, choice, graph, CUDNN_HEUR_MODE_A, err) && !p->unknown))
        return -1;
    return p->execution || !choice->compiles
               ? 0 : try_mode(p, choice, graph, CUDNN_HEUR_MODE_FALLBACK, err);
}

/* Between runs ----------------------------------------------------------------------------- */

/* Of a plan: which cuDNN, which form of the graph, and what is computed. */
static char *subject_of(const char *kind, const void *what, size_t bytes)
{
    const unsigned char *byte = what;
    char *subject = mem_printf("cuDNN %zu, %s %d, %*s", cudnnGetVersion(), kind, GENERATION,
                               (int)(2 * bytes), "");
    char *digits = subject + strlen(subject) - 2 * bytes;

    for (size_t i = 0; i < bytes; i++) {
        digits[2 * i] = "0123456789abcdef"[byte[i] / 16];
        digits[2 * i + 1] = "0123456789abcdef"[byte[i] % 16];
    }
    return subject;
}

/* Its text is '0' or '1', for tensor cores, a newline, and cuDNN's. */
static bool take_text(struct cudnn_plan *p, const char *text, int64_t workspace_limit)
{
    struct cudnn_attribute from = { CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0,
                                    text + 2 };
    struct err ignored = { .code = EXIT_OK };

    if ((text[0] != '0' && text[0] != '1') || text[1] != '\n')
        return false;
    from.n = (int64_t)strlen(text + 2);
    p->on_tensor_cores = text[0] == '1';
    return from.n > 0 && try_plan(p, &from, workspace_limit, &ignored) == 0 && p->execution;
}

bool cudnn_recall(struct cudnn_plan *p, const char *kind, const void *what, size_t bytes,
                  int64_t workspace_limit)
{
    const struct cuda_store *store = &p->device->store;
    char *subject, *text;
    bool taken;

    if (!store->get)
        return false;
    subject = subject_of(kind, what, bytes);
    text = store->get(store->context, subject);
    taken = text && take_text(p, text, workspace_limit);
    free(text);
    free(subject);
    return taken;
}

/* cuDNN's text, with room for two characters before it; NULL where it gives none. */
static char *text_of(cudnnBackendDescriptor_t execution)
{
    int64_t n = 0;
    char *text;

    if (cudnnBackendGetAttribute(execution, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, 0, &n, NULL) != CUDNN_STATUS_SUCCESS || n <= 0)
        return NULL;
    text = mem_new((size_t)n + 3, 1);
    if (cudnnBackendGetAttribute(execution, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, n, &n, text + 2) == CUDNN_STATUS_SUCCESS)
        return text;
    free(text);
    return NULL;
}

void cudnn_remember(const struct cudnn_plan *p, const char *kind, const void *what, size_t bytes)
{
    const struct cuda_store *store = &p->device->store;
    char *text = store->put && p->execution ? text_of(p->execution) : NULL, *subject;

    if (!text)
        return;
    text[0] = p->on_tensor_cores ? '1' : '0';
    text[1] = '\n';
    subject = subject_of(kind, what, bytes);
    store->put(store->context, subject, text);
    free(subject);
    free(text);
}

const struct cudnn_plan *cudnn_plan_of(struct cuda_device *device, const struct cudnn_family *family,
                                       const void *what)
{
    struct err ignored = { .code = EXIT_OK };
    struct entry *e = device->cudnn->entries;

    while (e && (e->family != family || memcmp(e->what, what, family->bytes) != 0))
        e = e->next;
    if (e)
        return &e->plan;
    e = mem_new(1, sizeof(*e));
    *e = (struct entry){ .next = device->cudnn->entries, .family = family,
                         .what = mem_new(family->bytes, 1), .plan = { .device = device } };
    memcpy(e->what, what, family->bytes);
    if (!cudnn_recall(&e->plan, family->kind, what, family->bytes, family->workspace_limit)) {
        if (family->choose(&e->plan, what, family->workspace_limit, &ignored))
            e->plan.execution = NULL;
        cudnn_remember(&e->plan, family->kind, what, family->bytes);
    }
    if (e->plan.execution && family->of_products)
        cuda_count_product(device, 1, e->plan.on_tensor_cores);
    device->cudnn->entries = e;
    return &e->plan;
}

/* Running ---------------------------------------------------------------------------------- */

int cudnn_make_pack(const struct cudnn_plan *p, const int64_t *ids, const void *const *at, int n,
                    void *workspace, cudnnBackendDescriptor_t *pack, struct err *err)
{
    const struct cudnn_attribute list[] = {
        { CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids },
        { CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at },
        { CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace },
    };

    if (*pack)
        (void)cudnnBackendDestroyDescriptor(*pack);
    *pack = NULL;
    CUDNN_CHECK(p->device, cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
                                                        pack), err);
    if (set_all(p, *pack, list, COUNT(list), err))
        return -1;
    CUDNN_CHECK(p->device, cudnnBackendFinalize(*pack), err);
    return 0;
}

int cudnn_execute(const struct cudnn_plan *p, cudaStream_t stream, cudnnBackendDescriptor_t pack,
                  struct err *err)
{
    cudnnHandle_t handle = p->device->cudnn->handle;

    CUDNN_CHECK(p->device, cudnnSetStream(handle, stream), err);
    CUDNN_CHECK(p->device, cudnnBackendExecute(handle, p->execution, pack), err);
    return 0;
}
