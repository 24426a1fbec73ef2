/* SPDX-License-Identifier: MIT */
/* Initializers that are transposed copies of others: what an exporter makes of a weight that is
 * used twice, once transposed, when it folds the transpose away.
 */
#include "graph/onnx.h"

#include <string.h>

#include "base/mem.h"

enum { SAMPLES = 16, LEAST_ELEMENTS = 16, MOST_PAIRS = 1 << 22 };

/* Names that exporters make up; others are the network's own. */
static bool is_made_up(const char *name)
{
    return strncmp(name, "val_", 4) == 0 || strncmp(name, "onnx::", 6) == 0;
}

static bool is_matrix(const struct onnx_tensor *t)
{
    return t->data && dtype_is_float(t->dtype) && t->shape.rank == 2 &&
           shape_elements(&t->shape) >= LEAST_ELEMENTS;
}

/* Is element (row, column) of 'copy' element (column, row) of 'of'? */
static bool same_element(const struct onnx_tensor *copy, const struct onnx_tensor *of,
                         size_t index)
{
    size_t size = dtype_size(copy->dtype), columns = (size_t)copy->shape.dim[1];
    size_t from = index % columns * (size_t)of->shape.dim[1] + index / columns;

    return memcmp(copy->data + index * size, of->data + from * size, size) == 0;
}

static bool is_copy(const struct onnx_tensor *copy, const struct onnx_tensor *of)
{
    size_t n = (size_t)shape_elements(&copy->shape), size = dtype_size(copy->dtype), i;
    bool varies = false;

    if (copy->dtype != of->dtype || copy->shape.dim[0] != of->shape.dim[1] ||
        copy->shape.dim[1] != of->shape.dim[0])
        return false;
    /* A few places first: most weights need not be read. */
    for (i = 0; i < SAMPLES; i++)
        if (!same_element(copy, of, n / SAMPLES * i))
            return false;
    for (i = 0; i < n; i++) {
        if (!same_element(copy, of, i))
            return false;
        varies |= memcmp(copy->data, copy->data + i * size, size) != 0;
    }
    /* Matrices of one value are equal by chance. */
    return varies;
}

void onnx_find_copies(struct onnx *onnx)
{
    int i, k, pairs = 0;

    onnx->copy_of = mem_new((size_t)onnx->n_initializers, sizeof(*onnx->copy_of));
    for (i = 0; i < onnx->n_initializers; i++) {
        const struct onnx_tensor *copy = &onnx->initializers[i];

        onnx->copy_of[i] = -1;
        if (!is_made_up(copy->name) || !is_matrix(copy))
            continue;
        for (k = 0; k < onnx->n_initializers && onnx->copy_of[i] < 0 && pairs < MOST_PAIRS;
             k++, pairs++)
            if (!is_made_up(onnx->initializers[k].name) && is_matrix(&onnx->initializers[k]) &&
                is_copy(copy, &onnx->initializers[k]))
                onnx->copy_of[i] = k;
    }
}
