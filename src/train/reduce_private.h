/* SPDX-License-Identifier: MIT */
/* Between reduce.c and the part of it that NCCL does. */
#ifndef TASUKI_TRAIN_REDUCE_PRIVATE_H
#define TASUKI_TRAIN_REDUCE_PRIVATE_H

#include "train/reduce.h"

/* Begin to copy, in this stream, a bucket of 'array' to the host, or back. */
int reduce_copy(const struct reduce *reduce, const struct bucket *bucket, char *array, bool back,
                struct stream *stream, struct err *err);
/* Its gradients, to be summed there. */
int reduce_copy_out(struct reduce *reduce, struct bucket *bucket, struct err *err);
/* Has one of its group that was posted before it not got beyond its step? */
bool reduce_is_behind(const struct reduce *reduce, const struct bucket *bucket);

/* reduce_nccl.c */
int reduce_join(struct reduce *reduce, struct bucket *bucket, struct err *err);
int reduce_spread(struct reduce *reduce, struct bucket *bucket, struct err *err);
/* Of a bucket that joins or spreads: is its sum there? */
int reduce_test_nccl(struct reduce *reduce, struct bucket *bucket, bool *done, struct err *err);
/* Between rounds in which not all was done. */
int reduce_idle(struct reduce *reduce, struct err *err);
int reduce_gather_nccl(struct reduce *reduce, char *array, struct err *err);
bool reduce_needs_mirror(const struct reduce *reduce);
void reduce_clear_nccl(struct reduce *reduce);

#endif
