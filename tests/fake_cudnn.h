/* SPDX-License-Identifier: MIT */
/* What the files of the stand-in for cuDNN share. */
#ifndef TASUKI_TESTS_FAKE_CUDNN_H
#define TASUKI_TESTS_FAKE_CUDNN_H

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FAKE_CUDNN_WORKSPACE ((int64_t)1000)    /* what the good engine wants */
#define MOST_ATTRIBUTES 10

#define REQUIRE(condition, ...)                                     \
    do {                                                            \
        if (!(condition)) {                                         \
            fprintf(stderr, "fake cuDNN: %s: ", __func__);          \
            fprintf(stderr, __VA_ARGS__);                           \
            fputc('\n', stderr);                                    \
            abort();                                                \
        }                                                           \
    } while (0)

enum engine { RANDOM, REFUSING, HUNGRY, COMPILED, TENSOR, GOOD, ENGINES };

struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    void *values;
};

/* Freed with the last handle, so that who uses one that was destroyed is found out. */
struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool final, destroyed;
    int n;
    struct attribute attributes[MOST_ATTRIBUTES];
    enum engine engine;                 /* of an engine and of its configuration */
    const struct descriptor *graph;     /* of a configuration */
    struct descriptor *next;
};

/* Each ends the process where there is no such thing. */
struct descriptor *fake_living(const void *descriptor);
const struct attribute *fake_find(const struct descriptor *d, cudnnBackendAttributeName_t name);
int64_t fake_number(const struct descriptor *d, cudnnBackendAttributeName_t name);
const int64_t *fake_list(const struct descriptor *d, cudnnBackendAttributeName_t name, int64_t n);
/* The descriptor that an attribute is, finished. */
struct descriptor *fake_other(const struct descriptor *d, cudnnBackendAttributeName_t name,
                              cudnnBackendDescriptorType_t type);
void *fake_workspace(const struct descriptor *pack);
struct descriptor *fake_new(cudnnBackendDescriptorType_t type);

/* fake_cudnn_forms.c: what a descriptor of a type may have, of which it needs the first so many; bytes. */
struct form {
    cudnnBackendDescriptorType_t type;
    struct {
        cudnnBackendAttributeName_t name;
        cudnnBackendAttributeType_t type;
    } attributes[MOST_ATTRIBUTES];
};

const struct form *fake_form_of(cudnnBackendDescriptorType_t type);
int fake_needed(cudnnBackendDescriptorType_t type);
size_t fake_size_of(cudnnBackendAttributeType_t type);

/* fake_cudnn_text.c: of a plan's configuration, malloc'ed, and a configuration of one, or NULL. */
char *fake_plan_text(const struct descriptor *config);
struct descriptor *fake_plan_of(const char *text, int64_t bytes);

/* fake_cudnn_graph.c: is it one that it can compute; compute it in order with the stream. */
bool fake_graph_known(const struct descriptor *graph);
void fake_graph_execute(const struct descriptor *graph, const struct descriptor *pack,
                        cudaStream_t stream);

#endif
