/* SPDX-License-Identifier: MIT */
/* Where the samples of WebDataset tars are: consecutive files of one name up to the first dot
 * of the last component, of which .jpg or .jpeg is the picture and .cls its class as a number.
 * Only headers of the archives and of the pictures, and the pictures' ends are read.
 */
#ifndef TASUKI_TRAIN_TAR_INDEX_H
#define TASUKI_TRAIN_TAR_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"

struct arena;
struct err;

struct tar_sample {
    const char *name;           /* without the extension */
    const unsigned char *bytes; /* of the picture, in the mapping */
    size_t size;
    int shard, width, height;
    int64_t label;
};

struct tar_index {
    int n_shards;
    char **paths;
    struct file_map *maps;
    int64_t n, room;
    struct tar_sample *samples; /* the good ones, in the order of shards and files */
    int64_t n_bad;
    int n_named;
    char **bad;                 /* the first of them: "shard.tar: sample \"x\": why" */
};

#define TAR_INDEX_NAMED 16

bool tar_index_built(void);     /* is libarchive there? */
/* From 'cache' (a directory; NULL: none) where that is possible; what was read instead is kept
 * there for the next time if 'keeps'. What is left after a failure is for tar_index_clear().
 */
int tar_index_open(struct tar_index *index, const char *spec, const char *cache, bool keeps,
                   struct err *err);
void tar_index_clear(struct tar_index *index);

#endif
