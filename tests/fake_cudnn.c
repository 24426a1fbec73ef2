/* SPDX-License-Identifier: MIT */
/* A stand-in for cuDNN's backend API on top of fake_cuda.c: graphs of one convolution, and others by
 * fake_cudnn_graph.c and fake_cudnn_image.c, are computed by the host, in order with the stream, summed in
 * double. Of the engines that it offers only one is of use to who wants the same bits each time and has no memory without end. Whatever
 * it does not know, or the library would not take, ends the process with a message.
 */
#include "config.h"

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake_cuda.h"
#include "tests/fake_cudnn.h"
#include "tests/fake_real.h"

#define WORKSPACE FAKE_CUDNN_WORKSPACE
#define MOST_RANK 5

#define MAY_FAIL()                                      \
    do {                                                \
        int result_ = fake_planted(__func__);           \
        if (result_)                                    \
            return (cudnnStatus_t)result_;              \
    } while (0)

struct cudnnContext {
    cudaStream_t stream;
    bool stream_set;
};

static struct descriptor *all;
static int handles;

/* Attributes ------------------------------------------------------------------------------ */

struct descriptor *fake_living(const void *descriptor)
{
    struct descriptor *d = all;

    while (d && d != descriptor)
        d = d->next;
    REQUIRE(d, "not a descriptor");
    REQUIRE(!d->destroyed, "descriptor of type %d was destroyed", (int)d->type);
    return d;
}

const struct attribute *fake_find(const struct descriptor *d,
                                    cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->n; i++)
        if (d->attributes[i].name == name)
            return &d->attributes[i];
    REQUIRE(false, "descriptor of type %d without attribute %d", (int)d->type, (int)name);
    return NULL;
}

int64_t fake_number(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    const struct attribute *a = fake_find(d, name);

    REQUIRE(a->n == 1, "attribute %d has %lld values", (int)name, (long long)a->n);
    return a->type == CUDNN_TYPE_INT64 ? *(int64_t *)a->values : *(int *)a->values;
}

static float real(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    return *(float *)fake_find(d, name)->values;
}

const int64_t *fake_list(const struct descriptor *d, cudnnBackendAttributeName_t name,
                           int64_t n)
{
    const struct attribute *a = fake_find(d, name);

    REQUIRE(a->n == n, "attribute %d has %lld values, not %lld", (int)name, (long long)a->n,
            (long long)n);
    return a->values;
}

/* The descriptor that an attribute is, finished. */
struct descriptor *fake_other(const struct descriptor *d, cudnnBackendAttributeName_t name,
                                cudnnBackendDescriptorType_t type)
{
    const struct attribute *a = fake_find(d, name);
    struct descriptor *found = fake_living(*(void **)a->values);

    REQUIRE(a->n == 1 && found->final && found->type == type, "attribute %d", (int)name);
    return found;
}

/* Convolutions ---------------------------------------------------------------------------- */

struct tensor {
    int rank;
    cudnnDataType_t type;
    int64_t id, alignment, dim[MOST_RANK], stride[MOST_RANK];
};

struct convolution {
    cudnnBackendDescriptorType_t type;
    struct tensor x, w, y;
    int64_t before[3], after[3], step[3], dilation[3], groups;
    float alpha, beta;
    void *at[3];                        /* of x, w, y */
    double *here[3];                    /* while it is run */
    void *workspace;
};

static bool is_narrow(const struct tensor *t)
{
    return t->type == CUDNN_DATA_BFLOAT16 || t->type == CUDNN_DATA_HALF;
}

static int64_t elements(const struct tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

/* One element after the other, channels before or after the axes of space. */
static void check_strides(const struct tensor *t)
{
    bool last = t->dim[1] > 1 && t->stride[t->rank - 1] == t->dim[1];
    int64_t dense = last ? t->dim[1] : 1;

    for (int i = t->rank - 1; i >= 0; i--) {
        if (last && i == 1)
            continue;
        REQUIRE(t->dim[i] > 0 && (t->dim[i] == 1 || t->stride[i] == dense), "axis %d", i);
        dense *= t->dim[i];
    }
}

static void read_tensor(const struct descriptor *d, struct tensor *t)
{
    int64_t n = fake_find(d, CUDNN_ATTR_TENSOR_DIMENSIONS)->n;

    t->type = (cudnnDataType_t)fake_number(d, CUDNN_ATTR_TENSOR_DATA_TYPE);
    REQUIRE(t->type == CUDNN_DATA_FLOAT || is_narrow(t), "type %d", (int)t->type);
    REQUIRE(n == 4 || n == 5, "%lld axes", (long long)n);
    t->rank = (int)n;
    t->id = fake_number(d, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t->alignment = fake_number(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    memcpy(t->dim, fake_list(d, CUDNN_ATTR_TENSOR_DIMENSIONS, n), (size_t)n * sizeof(*t->dim));
    memcpy(t->stride, fake_list(d, CUDNN_ATTR_TENSOR_STRIDES, n), (size_t)n * sizeof(*t->stride));
    check_strides(t);
}

static void read_window(const struct descriptor *d, int rank, struct convolution *c)
{
    size_t bytes = (size_t)rank * sizeof(int64_t);

    REQUIRE(fake_number(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT, "not float32");
    REQUIRE(fake_number(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION, "mode");
    REQUIRE(fake_number(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == rank, "axes");
    memcpy(c->dilation, fake_list(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, rank), bytes);
    memcpy(c->step, fake_list(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, rank), bytes);
    memcpy(c->before, fake_list(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, rank), bytes);
    memcpy(c->after, fake_list(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, rank), bytes);
}

static void check_convolution(const struct convolution *c)
{
    REQUIRE(c->x.rank == c->w.rank && c->x.rank == c->y.rank, "axes differ");
    REQUIRE(c->x.dim[0] == c->y.dim[0] && c->w.dim[0] == c->y.dim[1] &&
                c->x.dim[1] % c->w.dim[1] == 0 && c->w.dim[0] % c->groups == 0,
            "the shapes do not fit");
    REQUIRE(c->x.type == c->y.type, "the types do not fit");
    REQUIRE(c->x.id != c->w.id && c->x.id != c->y.id && c->w.id != c->y.id, "one id for two");
    for (int i = 0; i < c->x.rank - 2; i++) {
        int64_t window = (c->w.dim[i + 2] - 1) * c->dilation[i] + 1;

        REQUIRE(c->before[i] >= 0 && c->after[i] >= 0 && c->step[i] > 0 && c->dilation[i] > 0,
                "axis %d", i);
        REQUIRE((c->x.dim[i + 2] + c->before[i] + c->after[i] - window) / c->step[i] + 1 ==
                    c->y.dim[i + 2],
                "axis %d has not so many outputs", i);
    }
}

static void read_operation(const struct descriptor *d, const cudnnBackendAttributeName_t *names,
                           struct convolution *c)
{
    *c = (struct convolution){ .type = d->type };
    read_tensor(fake_other(d, names[0], CUDNN_BACKEND_TENSOR_DESCRIPTOR), &c->x);
    read_tensor(fake_other(d, names[1], CUDNN_BACKEND_TENSOR_DESCRIPTOR), &c->w);
    read_tensor(fake_other(d, names[2], CUDNN_BACKEND_TENSOR_DESCRIPTOR), &c->y);
    read_window(fake_other(d, names[3], CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR), c->x.rank - 2, c);
    c->alpha = real(d, names[4]);
    c->beta = real(d, names[5]);
    c->groups = c->x.dim[1] / c->w.dim[1];
    check_convolution(c);
}

static bool is_operation(cudnnBackendDescriptorType_t type)
{
    return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

static void read_convolution(const struct descriptor *operation, struct convolution *c)
{
    cudnnBackendAttributeName_t names[6];

    REQUIRE(is_operation(operation->type), "type %d", (int)operation->type);
    for (int i = 0; i < 6; i++)
        names[i] = fake_form_of(operation->type)->attributes[i].name;
    read_operation(operation, names, c);
}

/* The library has 16 bits of all but these, and makes float32 of them without groups alone. */
static bool is_known(const struct convolution *c)
{
    if (!is_narrow(&c->x))
        return true;
    if (c->w.type == CUDNN_DATA_FLOAT)
        return c->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR &&
               c->groups == 1;
    REQUIRE(c->w.type == c->x.type, "the types do not fit");
    return c->x.rank == 4 || c->groups == 1;
}

/* Where in planes of x, w and y the window's position 'tap' at output 'out' is; false: padding. */
static bool find_place(const struct convolution *c, int64_t out, int64_t tap, int64_t at[3])
{
    at[0] = at[1] = at[2] = 0;
    for (int i = c->x.rank - 1; i >= 2; i--) {
        int64_t o = out % c->y.dim[i], k = tap % c->w.dim[i];
        int64_t p = o * c->step[i - 2] + k * c->dilation[i - 2] - c->before[i - 2];

        if (p < 0 || p >= c->x.dim[i])
            return false;
        out /= c->y.dim[i];
        tap /= c->w.dim[i];
        at[0] += p * c->x.stride[i];
        at[1] += k * c->w.stride[i];
        at[2] += o * c->y.stride[i];
    }
    return true;
}

static int64_t plane(const struct tensor *t)
{
    return elements(t) / t->dim[0] / t->dim[1];
}

/* A position of the window at an output: where it is in planes of x, w and y. */
struct place {
    int64_t x, w, y;
};

static struct place *list_places(const struct convolution *c, int64_t *n)
{
    int64_t outs = plane(&c->y), taps = plane(&c->w), at[3];
    struct place *places = malloc((size_t)(outs * taps) * sizeof(*places));

    *n = 0;
    for (int64_t out = 0; out < outs; out++)
        for (int64_t tap = 0; tap < taps; tap++)
            if (find_place(c, out, tap, at))
                places[(*n)++] = (struct place){ at[0], at[1], at[2] };
    return places;
}

/* All that one plane of w has to do with one image. */
static void add_plane(const struct convolution *c, const struct place *places, int64_t n_places,
                      int64_t n, int64_t o, int64_t i, double *sum)
{
    int64_t group = o / (c->w.dim[0] / c->groups), channel = group * c->w.dim[1] + i;
    int64_t x = n * c->x.stride[0] + channel * c->x.stride[1];
    int64_t w = o * c->w.stride[0] + i * c->w.stride[1];
    int64_t y = n * c->y.stride[0] + o * c->y.stride[1];
    const double *here_x = c->here[0], *here_w = c->here[1], *here_y = c->here[2];

    if (c->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
        for (const struct place *p = places; p < places + n_places; p++)
            sum[y + p->y] += here_x[x + p->x] * here_w[w + p->w];
    else if (c->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
        for (const struct place *p = places; p < places + n_places; p++)
            sum[x + p->x] += here_y[y + p->y] * here_w[w + p->w];
    else
        for (const struct place *p = places; p < places + n_places; p++)
            sum[w + p->w] += here_x[x + p->x] * here_y[y + p->y];
}

static double *load(const struct tensor *t, const void *at)
{
    int64_t n = elements(t);
    double *here = malloc((size_t)n * sizeof(*here));

    for (int64_t i = 0; i < n; i++)
        here[i] = is_narrow(t) ? (double)fake_widened(((const uint16_t *)at)[i],
                                                      t->type == CUDNN_DATA_HALF)
                               : (double)((const float *)at)[i];
    return here;
}

static void put(const struct tensor *t, void *at, int64_t i, double x)
{
    if (is_narrow(t))
        ((uint16_t *)at)[i] = fake_rounded((float)x, t->type == CUDNN_DATA_HALF);
    else
        ((float *)at)[i] = (float)x;
}

static void run_convolution(void *argument)
{
    struct convolution *c = argument;
    const struct tensor *tensors[] = { &c->x, &c->w, &c->y };
    int result = c->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? 2
                 : c->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? 0
                                                                                           : 1;
    int64_t size = elements(tensors[result]), n_places;
    struct place *places = list_places(c, &n_places);
    double *sum = calloc((size_t)size, sizeof(*sum));

    memset(c->workspace, 0xff, (size_t)WORKSPACE);
    for (int i = 0; i < 3; i++)
        c->here[i] = i == result && c->beta == 0 ? NULL : load(tensors[i], c->at[i]);
    for (int64_t n = 0; n < c->x.dim[0]; n++)
        for (int64_t o = 0; o < c->w.dim[0]; o++)
            for (int64_t i = 0; i < c->w.dim[1]; i++)
                add_plane(c, places, n_places, n, o, i, sum);
    for (int64_t i = 0; i < size; i++)
        put(tensors[result], c->at[result], i,
            (double)c->alpha * sum[i] + (c->beta != 0 ? (double)c->beta * c->here[result][i] : 0));
    for (int i = 0; i < 3; i++)
        free(c->here[i]);
    free(places);
    free(sum);
}

/* The API --------------------------------------------------------------------------------- */

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    static char text[32];

    snprintf(text, sizeof(text), "status %d", (int)status);
    return text;
}

void cudnnGetLastErrorString(char *message, size_t size)
{
    snprintf(message, size, "no more is known");
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    ALONE;
    MAY_FAIL();
    *handle = calloc(1, sizeof(**handle));
    handles++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    ALONE;
    free(handle);
    handles--;
    while (handles == 0 && all) {
        struct descriptor *next = all->next;

        for (int i = 0; i < all->n; i++)
            free(all->attributes[i].values);
        free(all);
        all = next;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    ALONE;
    MAY_FAIL();
    handle->stream = stream;
    handle->stream_set = true;
    return CUDNN_STATUS_SUCCESS;
}

struct descriptor *fake_new(cudnnBackendDescriptorType_t type)
{
    struct descriptor *d = calloc(1, sizeof(*d));

    (void)fake_form_of(type);
    d->type = type;
    d->next = all;
    return all = d;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *descriptor)
{
    ALONE;
    MAY_FAIL();
    *descriptor = fake_new(type);
    return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    ALONE;
    fake_living(descriptor)->destroyed = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *values)
{
    ALONE;
    struct descriptor *d = fake_living(descriptor);
    const struct form *form = fake_form_of(d->type);
    struct attribute *a = &d->attributes[d->n];
    int known = 0;

    MAY_FAIL();
    REQUIRE(!d->final, "attribute %d of what is finished", (int)name);
    while (known < MOST_ATTRIBUTES && form->attributes[known].name != name)
        known++;
    REQUIRE(known < MOST_ATTRIBUTES && d->n < MOST_ATTRIBUTES, "type %d, attribute %d",
            (int)d->type, (int)name);
    REQUIRE(form->attributes[known].type == type && n > 0, "attribute %d is not of type %d",
            (int)name, (int)type);
    *a = (struct attribute){ name, type, n, malloc((size_t)n * fake_size_of(type)) };
    memcpy(a->values, values, (size_t)n * fake_size_of(type));
    d->n++;
    return CUDNN_STATUS_SUCCESS;
}

static bool is_one_convolution(const struct descriptor *graph)
{
    const struct attribute *operations = fake_find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);

    return operations->n == 1 && is_operation(fake_living(*(void **)operations->values)->type);
}

static bool is_graph_known(const struct descriptor *graph)
{
    struct convolution c;

    if (!is_one_convolution(graph))
        return fake_graph_known(graph);
    read_convolution(fake_living(*(void **)fake_find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)->values),
                     &c);
    return is_known(&c);
}

/* A plan of a text gets the configuration that this is of. */
static bool read_plan(struct descriptor *plan)
{
    const struct attribute *last = &plan->attributes[plan->n - 1];
    struct descriptor *config, **values;

    if (last->name != CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)
        return true;
    config = fake_plan_of(last->values, last->n);
    if (!config)
        return false;
    values = malloc(sizeof(*values));
    *values = config;
    plan->attributes[plan->n++] = (struct attribute){ CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, values };
    return true;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    ALONE;
    struct descriptor *d = fake_living(descriptor);
    const struct form *form = fake_form_of(d->type);
    struct convolution c;

    MAY_FAIL();
    REQUIRE(!d->final && d->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR &&
                d->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR, "type %d cannot be finished",
            (int)d->type);
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && !read_plan(d))
        return CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; i < fake_needed(d->type) && form->attributes[i].type != 0; i++)
        (void)fake_find(d, form->attributes[i].name);
    if (is_operation(d->type))
        read_convolution(d, &c);
    if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR && !is_graph_known(d))
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
        fake_other(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
              CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)->engine == REFUSING)
        return CUDNN_STATUS_NOT_SUPPORTED;
    d->final = true;
    return CUDNN_STATUS_SUCCESS;
}

static int64_t give_configs(const struct descriptor *heuristics, int64_t most,
                            cudnnBackendDescriptor_t *configs)
{
    REQUIRE(fake_number(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A, "mode");
    REQUIRE(most >= ENGINES, "room for %lld configurations", (long long)most);
    for (int i = 0; i < ENGINES; i++) {
        struct descriptor *config = fake_living(configs[i]);

        REQUIRE(config->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && !config->final,
                "not a configuration");
        config->engine = (enum engine)i;
        config->graph = fake_other(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                              CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
        config->final = true;
    }
    return ENGINES;
}

static const struct descriptor *config_of(const struct descriptor *plan)
{
    return fake_other(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                 CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
}

/* With a null at its end; how long it is, to who has no room. */
static void give_text(const struct descriptor *plan, int64_t room, int64_t *n, char *to)
{
    char *text = fake_plan_text(config_of(plan));

    *n = (int64_t)strlen(text) + 1;
    REQUIRE(room == 0 || room >= *n, "room for %lld characters", (long long)room);
    if (room)
        memcpy(to, text, (size_t)*n);
    free(text);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t *n, void *values)
{
    ALONE;
    const struct descriptor *d = fake_living(descriptor);

    MAY_FAIL();
    REQUIRE(d->final, "attribute %d of what is not finished", (int)name);
    *n = 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        int result = fake_planted("heuristics");

        if (result)
            return (cudnnStatus_t)result;
        *n = give_configs(d, wanted, values);
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        struct descriptor *engine = fake_living(*(void **)values);

        REQUIRE(engine->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR, "not an engine");
        engine->engine = d->engine;
        engine->final = true;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE) {
        static const cudnnBackendNumericalNote_t notes[] = {
            CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
            CUDNN_NUMERICAL_NOTE_TENSOR_CORE };

        *n = d->engine == RANDOM ? 2 : d->engine == TENSOR || d->engine == COMPILED;
        memcpy(values, d->engine == RANDOM ? notes : notes + 2, (size_t)*n * sizeof(notes[0]));
    } else if (name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE && type == CUDNN_TYPE_BEHAVIOR_NOTE) {
        static const cudnnBackendBehaviorNote_t compiled = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;

        *n = d->engine == COMPILED;
        memcpy(values, &compiled, (size_t)*n * sizeof(compiled));
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64)
        *(int64_t *)values = config_of(d)->engine == HUNGRY ? INT64_MAX : WORKSPACE;
    else if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION && type == CUDNN_TYPE_CHAR)
        give_text(d, wanted, n, values);
    else
        REQUIRE(false, "attribute %d of type %d", (int)name, (int)type);
    return CUDNN_STATUS_SUCCESS;
}

void *fake_workspace(const struct descriptor *pack)
{
    void *workspace = *(void **)fake_find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->values;

    REQUIRE(fake_on_gpu(workspace, (size_t)WORKSPACE) && (uintptr_t)workspace % 256 == 0,
            "the workspace is too small, not on the GPU, or not aligned");
    return workspace;
}

static void *operand(const struct descriptor *pack, const struct tensor *t)
{
    const int64_t *ids = fake_list(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 3);
    const struct attribute *pointers = fake_find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);

    REQUIRE(pointers->n == 3, "%lld operands", (long long)pointers->n);
    for (int i = 0; i < 3; i++) {
        void *at = ((void **)pointers->values)[i];

        if (ids[i] != t->id)
            continue;
        REQUIRE(fake_on_gpu(at, (size_t)elements(t) * (is_narrow(t) ? 2 : 4)), "%c is not on the GPU",
                (char)t->id);
        REQUIRE((uintptr_t)at % (uintptr_t)t->alignment == 0, "%c is not aligned", (char)t->id);
        return at;
    }
    REQUIRE(false, "no operand %c", (char)t->id);
    return NULL;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    ALONE;
    const struct descriptor *p = fake_living(pack), *config = config_of(fake_living(plan));
    struct convolution c;

    MAY_FAIL();
    REQUIRE(handle->stream_set, "on which stream?");
    REQUIRE(fake_living(plan)->final && p->final, "not finished");
    REQUIRE(config->engine == GOOD || config->engine == TENSOR ||
                (config->engine == COMPILED && !is_one_convolution(fake_living(config->graph))),
            "engine %d", (int)config->engine);
    if (!is_one_convolution(fake_living(config->graph))) {
        fake_graph_execute(fake_living(config->graph), p, handle->stream);
        return CUDNN_STATUS_SUCCESS;
    }
    read_convolution(fake_living(*(void **)fake_find(fake_living(config->graph),
                                           CUDNN_ATTR_OPERATIONGRAPH_OPS)->values), &c);
    c.at[0] = operand(p, &c.x);
    c.at[1] = operand(p, &c.w);
    c.at[2] = operand(p, &c.y);
    c.workspace = fake_workspace(p);
    fake_enqueue(handle->stream, run_convolution, &c, sizeof(c));
    return CUDNN_STATUS_SUCCESS;
}
