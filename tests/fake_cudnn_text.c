/* SPDX-License-Identifier: MIT */
/* The text of a plan of the stand-in for cuDNN, and the plan of a text: "engine N", then the graph, each
 * descriptor as "( TYPE", its attributes as "NAME TYPE COUNT" and their values, and ")". A value is a
 * descriptor, or its bytes in hex; of a handle nothing is kept.
 */
#include "config.h"

#include <cudnn.h>
#include <string.h>

#include "tests/fake_cudnn.h"

static void write_value(FILE *to, const struct attribute *a, int64_t i)
{
    size_t size = fake_size_of(a->type);
    const unsigned char *byte = (const unsigned char *)a->values + (size_t)i * size;

    fputc(' ', to);
    for (size_t k = 0; k < size; k++)
        fprintf(to, "%02x", byte[k]);
}

static void write_descriptor(FILE *to, const struct descriptor *d)
{
    fprintf(to, "( %d", (int)d->type);
    for (int i = 0; i < d->n; i++) {
        const struct attribute *a = &d->attributes[i];

        if (a->type == CUDNN_TYPE_HANDLE)
            continue;
        fprintf(to, " %d %d %lld", (int)a->name, (int)a->type, (long long)a->n);
        for (int64_t k = 0; k < a->n; k++)
            if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
                fputc(' ', to);
                write_descriptor(to, fake_living(((void **)a->values)[k]));
            } else
                write_value(to, a, k);
    }
    fputs(" )", to);
}

char *fake_plan_text(const struct descriptor *config)
{
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);

    fprintf(to, "engine %d ", (int)config->engine);
    write_descriptor(to, fake_living(config->graph));
    fclose(to);
    return text;
}

static struct descriptor *read_descriptor(FILE *from);

static bool read_values(FILE *from, struct attribute *a)
{
    size_t size = fake_size_of(a->type);

    a->values = calloc((size_t)a->n, size);
    for (int64_t i = 0; i < a->n; i++) {
        unsigned char *byte = (unsigned char *)a->values + (size_t)i * size;

        if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
            struct descriptor *d = read_descriptor(from);

            if (!d)
                return false;
            memcpy(byte, &d, sizeof(d));
            continue;
        }
        if (fgetc(from) != ' ')
            return false;
        for (size_t k = 0; k < size; k++)
            if (fscanf(from, "%2hhx", &byte[k]) != 1)
                return false;
    }
    return true;
}

static struct descriptor *read_descriptor(FILE *from)
{
    int type, name, kind;
    long long n;
    struct descriptor *d;

    if (fscanf(from, " ( %d", &type) != 1)
        return NULL;
    d = fake_new((cudnnBackendDescriptorType_t)type);
    while (fscanf(from, " %d %d %lld", &name, &kind, &n) == 3) {
        struct attribute *a = &d->attributes[d->n];

        if (n <= 0 || n > 1000 || d->n == MOST_ATTRIBUTES)
            return NULL;
        *a = (struct attribute){ (cudnnBackendAttributeName_t)name, (cudnnBackendAttributeType_t)kind, n,
                                 NULL };
        d->n++;
        if (!read_values(from, a))
            return NULL;
    }
    d->final = true;
    return fgetc(from) == ')' ? d : NULL;
}

struct descriptor *fake_plan_of(const char *text, int64_t bytes)
{
    char *copy = strndup(text, (size_t)bytes);
    FILE *from = fmemopen(copy, strlen(copy), "r");
    struct descriptor *graph = NULL, *config = NULL;
    int engine;

    if (from && fscanf(from, "engine %d", &engine) == 1 && engine >= 0 && engine < ENGINES)
        graph = read_descriptor(from);
    if (graph && graph->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
        config = fake_new(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        config->engine = (enum engine)engine;
        config->graph = graph;
        config->final = true;
    }
    if (from)
        fclose(from);
    free(copy);
    return config;
}
