/* SPDX-License-Identifier: MIT */
/* Hostile files: made from a seed, fed to a reader, counted.
 *
 * A target makes one file per round and feeds it to its reader. The reader must survive (run
 * it under ASan and UBSan), and where it refuses a file it must say so in one line that names
 * the file. Each file depends on (seed, round) alone, so a failure is made again by
 *     fuzz_NAME FILES SEED FIRST
 * which defaults to $TASUKI_FUZZ_FILES or 300 files, seed 1, from round 0.
 */
#ifndef TASUKI_TESTS_FUZZ_H
#define TASUKI_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct fuzz {
    uint64_t state;
};

uint64_t fuzz_next(struct fuzz *fuzz);
/* 0 … n-1; 0 where n is 0. */
size_t fuzz_below(struct fuzz *fuzz, size_t n);
/* True once in 'n' times. */
bool fuzz_once_in(struct fuzz *fuzz, size_t n);
/* A number that hurts: 0, -1, powers of two and their neighbours, the largest, random. */
int64_t fuzz_number(struct fuzz *fuzz);

/* A growing file. */
struct fuzz_file {
    unsigned char *data;
    size_t size, room;
};

void fuzz_put(struct fuzz_file *file, const void *data, size_t size);
/* Damage bytes: flips, overwritten numbers, cut, repeated, removed and inserted pieces. */
void fuzz_damage(struct fuzz *fuzz, struct fuzz_file *file);

enum fuzz_result {
    FUZZ_UNPARSED,      /* not even the container could be read */
    FUZZ_REFUSED,       /* past the parser, refused by a later check */
    FUZZ_ACCEPTED
};

struct fuzz_target {
    const char *name;
    const char *suffix;     /* of the file's name, ".onnx" */
    /* Append one file to the empty 'file'. Where 'structured', a valid container with
     * mutated fields; else random, truncated or damaged bytes.
     */
    void (*make)(struct fuzz *fuzz, bool structured, struct fuzz_file *file);
    /* Read the file at 'path'; 'err' is filled unless the result is FUZZ_ACCEPTED. */
    enum fuzz_result (*try)(const char *path, struct err *err);
};

/* For main(): runs the target, prints TAP, returns the exit code. Every second file is
 * structured; at least 30 % of all must get past the parser.
 */
int fuzz_main(const struct fuzz_target *target, int argc, char **argv);

#endif
