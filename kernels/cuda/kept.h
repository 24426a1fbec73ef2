/* SPDX-License-Identifier: MIT */
/* What takes long to make for a GPU, in files of base/cache.h: one for each text that says all that it
 * follows from, beside the GPU and CUDA.
 */
#ifndef TASUKI_KERNELS_CUDA_KEPT_H
#define TASUKI_KERNELS_CUDA_KEPT_H

#include "kernels/cuda/cuda.h"

/* Can this be used? Else the next place is looked at. */
typedef bool kept_use(void *context, const void *data, size_t bytes);

/* DIRECTORY/KIND-HASHSUFFIX, malloc'ed; NULL: nothing is kept. */
char *cuda_kept_path(const struct device *device, const char *kind, const char *what,
                     const char *suffix);
/* Of the user's file and the site's, the first that can be used. 'path' may be NULL. */
bool cuda_kept_find(const char *path, kept_use *use, void *context);
/* Into the user's file; where that cannot be written nothing is kept. */
void cuda_kept_put(const char *path, const void *data, size_t bytes);

/* Of this device, for the module: texts, in files "cudnn-HASH.plan". */
struct cuda_store cuda_kept_store(struct device *device);

#endif
