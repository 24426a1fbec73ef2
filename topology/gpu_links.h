/* SPDX-License-Identifier: MIT */
/* What was measured between the GPUs of an allocation. */
#ifndef TASUKI_TOPOLOGY_GPU_LINKS_H
#define TASUKI_TOPOLOGY_GPU_LINKS_H

#include <jansson.h>

struct cluster;
struct err;
struct links;

struct gpu_links {
    struct cluster *cluster;    /* all GPUs; those of ranks know them. NULL: none measured */
    struct links *links;        /* likewise */
    char *library;              /* "NCCL 2.28.9", "hosts"; NULL likewise */
    char *note;                 /* what was not measured, and why; NULL: everything was */
};

/* NULL is fine. */
void gpu_links_free(struct gpu_links *gpus);

/* The tree, a table and the note; malloc'ed. */
char *gpu_links_text(const struct gpu_links *gpus);
/* The key "gpus" of a topology file; NULL with 'err' where it is wrong. */
json_t *gpu_links_to_json(const struct gpu_links *gpus);
struct gpu_links *gpu_links_from_json(const char *path, const json_t *json, struct err *err);

#endif
