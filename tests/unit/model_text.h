/* SPDX-License-Identifier: MIT */
/* A network written as text (onnx_text.h), opened as 'model' and built. */
#ifndef TASUKI_TESTS_MODEL_TEXT_H
#define TASUKI_TESTS_MODEL_TEXT_H

#include <stdbool.h>

#include "graph/model.h"

#define NET "input x float batch,4\n init w float 4,3\n node MatMul x,w -> y\n output y"

extern char net_directory[520], net_path[600];      /* of the file */
extern struct model *model;

/* For cmocka_run_group_tests(). */
int setup(void **state);
int teardown(void **state);

void open_model(const char *text);
/* A graph of the open model; done() frees both. */
struct graph *build_with(struct model_options options);
struct graph *build(const char *text, int64_t batch);
void done(struct graph *graph);

/* It cannot be built: the error, one line, names the file and says this. */
void refused_with(struct model_options options, const char *part);
void refused(const char *text, const char *part);

const struct value *value(const struct graph *graph, const char *name);
void shape_is(const struct graph *graph, const char *name, const char *expected);
bool noted(const char *part);               /* of the model's notes */
int count(const struct graph *graph, const char *op);

#endif
