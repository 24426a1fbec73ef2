/* SPDX-License-Identifier: MIT */
/* What the files of staging.h share. */
#ifndef TASUKI_TRAIN_STAGING_PRIVATE_H
#define TASUKI_TRAIN_STAGING_PRIVATE_H

#include "train/staging.h"

#define STAGING_KEY 33              /* "PATH-AGE", 16 hex digits each */
#define STAGING_SUM 16
#define STAGING_OLD ".old"
#define STAGING_NEW ".new"
#define STAGING_BUSY "copying"

struct staging_item {
    char key[STAGING_KEY + 1];
    const struct data_file *file;
    bool used;                      /* the copy is mapped */
    bool there;                     /* the leader's thread alone: no need to copy it */
};

/* Items in the order of their keys, of which two may be equal. */
struct staging_table {
    int n;
    struct staging_item *items;
};

/* What a name in the directory says. */
struct staging_name {
    char key[STAGING_KEY + 1], sum[STAGING_SUM + 1];
    enum { STAGING_OTHER, STAGING_COPY, STAGING_LEFT, STAGING_PART } kind;
};
struct staging_name staging_name(const char *text);
/* The first item of this key, or -1. */
int staging_find(const struct staging_table *table, const char *key);
/* Is it another age of a file in the table? Its path, or NULL. */
const char *staging_find_path(const struct staging_table *table, const char *key);

/* staging_place.c: 'path' is malloc'ed; the lock goes with the descriptor. */
int staging_claim(const char *parent, const char *host, char **path, int *fd, struct err *err);
/* The same directory, for another rank of the node. */
int staging_join(const char *path, int *fd, struct err *err);
/* Call 'visit' for each name in the directory, which it may remove. */
int staging_list(int fd, void (*visit)(void *context, const char *name), void *context);

/* staging_copy.c: the leader's thread. */
struct staging_copier;
struct staging_copier *staging_copier_new(const char *path, int fd,
                                          struct staging_table *table, int first,
                                          struct err *err);
/* The next warning, malloc'ed, or NULL. */
char *staging_copier_warning(struct staging_copier *copier);
void staging_copier_bytes(struct staging_copier *copier, double *bytes, double *copied);
/* Ends the thread, as staging_copier_free() does. */
void staging_copier_stop(struct staging_copier *copier);
void staging_copier_free(struct staging_copier *copier);

#endif
