/* SPDX-License-Identifier: MIT */
/* A stable sort of many by whole numbers, digit by digit. */
#ifndef TASUKI_BASE_DIGITS_H
#define TASUKI_BASE_DIGITS_H

#include <stdint.h>

struct digits_key {
    uint64_t key;
    int at;             /* whose it is */
};

/* Sort '*keys', which were allocated by mem_new(); others may take their place. */
void digits_sort(struct digits_key **keys, int n);

#endif
