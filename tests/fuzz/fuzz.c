/* SPDX-License-Identifier: MIT */
#include "fuzz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

struct run {
    const struct fuzz_target *target;
    long files, first;
    uint64_t seed;
    char path[64];
    long parsed, accepted, bad_errors;
};

/* splitmix64 */
uint64_t fuzz_next(struct fuzz *fuzz)
{
    uint64_t z = fuzz->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

size_t fuzz_below(struct fuzz *fuzz, size_t n)
{
    return n ? (size_t)(fuzz_next(fuzz) % n) : 0;
}

bool fuzz_once_in(struct fuzz *fuzz, size_t n)
{
    return fuzz_below(fuzz, n) == 0;
}

int64_t fuzz_number(struct fuzz *fuzz)
{
    uint64_t power = (uint64_t)1 << fuzz_below(fuzz, 64);

    switch (fuzz_below(fuzz, 8)) {
    case 0:
        return 0;
    case 1:
        return -1;
    case 2:
        return INT64_MAX - (int64_t)fuzz_below(fuzz, 2);
    case 3:
        return INT64_MIN + (int64_t)fuzz_below(fuzz, 2);
    case 4:
        return (int64_t)fuzz_next(fuzz);
    case 5:
        return (int64_t)fuzz_below(fuzz, 16);
    default:
        return (int64_t)(power - 1 + fuzz_below(fuzz, 3));
    }
}

void fuzz_put(struct fuzz_file *file, const void *data, size_t size)
{
    if (!size)
        return;
    if (file->size + size > file->room) {
        file->room = 2 * (file->size + size);
        file->data = mem_resize(file->data, file->room, 1);
    }
    memcpy(file->data + file->size, data, size);
    file->size += size;
}

static void overwrite(struct fuzz *fuzz, struct fuzz_file *file)
{
    int64_t number = fuzz_number(fuzz);
    size_t at = fuzz_below(fuzz, file->size), n = (size_t)1 << fuzz_below(fuzz, 4);

    if (n > file->size - at)
        n = file->size - at;
    memcpy(file->data + at, &number, n);
}

static void cut_out(struct fuzz *fuzz, struct fuzz_file *file)
{
    size_t at = fuzz_below(fuzz, file->size), n = 1 + fuzz_below(fuzz, file->size - at);

    memmove(file->data + at, file->data + at + n, file->size - at - n);
    file->size -= n;
}

static void repeat(struct fuzz *fuzz, struct fuzz_file *file)
{
    size_t at = fuzz_below(fuzz, file->size), n = 1 + fuzz_below(fuzz, file->size - at);
    size_t to = fuzz_below(fuzz, file->size), tail = file->size - to;
    unsigned char *piece = mem_new(n + tail, 1);

    memcpy(piece, file->data + at, n);
    memcpy(piece + n, file->data + to, tail);
    file->size = to;
    fuzz_put(file, piece, n + tail);
    free(piece);
}

void fuzz_damage(struct fuzz *fuzz, struct fuzz_file *file)
{
    size_t rounds = 1 + fuzz_below(fuzz, 8);

    while (rounds-- && file->size) {
        switch (fuzz_below(fuzz, 8)) {
        case 0:
            file->size = fuzz_below(fuzz, file->size);
            break;
        case 1:
            cut_out(fuzz, file);
            break;
        case 2:
            repeat(fuzz, file);
            break;
        case 3:
        case 4:
            overwrite(fuzz, file);
            break;
        default:
            file->data[fuzz_below(fuzz, file->size)] ^=
                (unsigned char)(1u << fuzz_below(fuzz, 8));
        }
    }
}

static int write_file(const struct run *run, const struct fuzz_file *file)
{
    FILE *out = fopen(run->path, "wb");
    bool good;

    if (!out)
        return -1;
    good = fwrite(file->data ? file->data : (const void *)"", 1, file->size, out) == file->size;
    return fclose(out) == 0 && good ? 0 : -1;
}

/* One line, the file's name in it, an exit code of 1 or 2. */
static bool is_good_error(const struct run *run, const struct err *err)
{
    size_t i;

    if ((err->code != EXIT_FAILED && err->code != EXIT_USAGE) || !strstr(err->text, run->path))
        return false;
    for (i = 0; err->text[i]; i++)
        if ((unsigned char)err->text[i] < ' ')
            return false;
    return true;
}

static int run_round(struct run *run, long round)
{
    struct fuzz fuzz = { run->seed * 0x100000001b3u + (uint64_t)round };
    struct fuzz_file file = { 0 };
    struct err err = { 0 };
    enum fuzz_result result;

    run->target->make(&fuzz, round % 2 == 0, &file);
    if (write_file(run, &file)) {
        printf("Bail out! cannot write %s\n", run->path);
        free(file.data);
        return -1;
    }
    free(file.data);
    result = run->target->try(run->path, &err);
    run->parsed += result != FUZZ_UNPARSED;
    run->accepted += result == FUZZ_ACCEPTED;
    if (result != FUZZ_ACCEPTED && !is_good_error(run, &err)) {
        run->bad_errors++;
        printf("# round %ld: code %d, error \"%s\"\n", round, (int)err.code, err.text);
    }
    return 0;
}

static long argument(int argc, char **argv, int index, const char *variable, long def)
{
    const char *text = index < argc ? argv[index] : variable ? getenv(variable) : NULL;

    return text && *text ? strtol(text, NULL, 10) : def;
}

static void report(const struct run *run)
{
    printf("# fuzz_%s: %ld files, %ld of them structured, %ld past the parser, %ld accepted\n",
           run->target->name, run->files, (run->files + 1) / 2, run->parsed, run->accepted);
    printf("ok 1 - the reader survives %ld hostile files\n", run->files);
    printf("%sok 2 - each refusal is one line that names the file\n",
           run->bad_errors ? "not " : "");
    printf("%sok 3 - at least 30 %% of the files get past the parser\n",
           run->parsed * 10 < run->files * 3 ? "not " : "");
}

int fuzz_main(const struct fuzz_target *target, int argc, char **argv)
{
    struct run run = { .target = target };
    long i;

    run.files = argument(argc, argv, 1, "TASUKI_FUZZ_FILES", 300);
    run.seed = (uint64_t)argument(argc, argv, 2, NULL, 1);
    run.first = argument(argc, argv, 3, NULL, 0);
    snprintf(run.path, sizeof(run.path), "fuzz-%s-%ld%s", target->name, (long)getpid(),
             target->suffix);
    printf("1..3\n# seed %" PRIu64 ", from round %ld; a crash leaves its file %s\n", run.seed,
           run.first, run.path);
    fflush(stdout);
    for (i = 0; i < run.files; i++)
        if (run_round(&run, run.first + i))
            return EXIT_FAILURE;
    unlink(run.path);
    report(&run);
    return run.bad_errors || run.parsed * 10 < run.files * 3 ? EXIT_FAILURE : EXIT_SUCCESS;
}
