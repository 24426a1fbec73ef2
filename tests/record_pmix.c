/* SPDX-License-Identifier: MIT */
/* Preloaded, it tells what a program gives others by PMIx: a line "RANK KEY BYTES" of the file
 * $TASUKI_PMIX_PUTS for each value of bytes that is put under a key of Tasuki's, by all its
 * processes. TASUKI_PMIX_SPOILS="1 tasuki.3 lost" keeps from the others what rank 1 puts under that
 * key; "refused" has its put fail, "kept" the commit that follows, "text" makes text of it, and "short"
 * leaves out its last byte.
 */
#include "config.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wconversion"
#include <pmix.h>
#pragma GCC diagnostic pop
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void tell(const char *path, const char *key, size_t bytes)
{
    const char *rank = getenv("PMIX_RANK");
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    char line[128];
    int n = snprintf(line, sizeof(line), "%.16s %.64s %zu\n", rank ? rank : "?", key, bytes);

    if (fd < 0 || write(fd, line, (size_t)n) != n)
        abort();
    close(fd);
}

/* What this rank's value under that key is to suffer; "": nothing. */
static void read_fate(const char *key, char fate[16])
{
    const char *spoils = getenv("TASUKI_PMIX_SPOILS"), *rank = getenv("PMIX_RANK");
    char who[16], what[64], how[16];

    fate[0] = '\0';
    if (spoils && rank && sscanf(spoils, "%15s %63s %15s", who, what, how) == 3 &&
        strcmp(who, rank) == 0 && strcmp(what, key) == 0)
        strcpy(fate, how);
}

static bool keeps;

pmix_status_t PMIx_Commit(void)
{
    __typeof__(&PMIx_Commit) real = (__typeof__(&PMIx_Commit))dlsym(RTLD_NEXT, "PMIx_Commit");

    return keeps ? PMIX_ERR_NOMEM : real();
}

pmix_status_t PMIx_Put(pmix_scope_t scope, const char key[], pmix_value_t *value)
{
    __typeof__(&PMIx_Put) real = (__typeof__(&PMIx_Put))dlsym(RTLD_NEXT, "PMIx_Put");
    const char *path = getenv("TASUKI_PMIX_PUTS");
    pmix_value_t changed = *value;
    char fate[16];

    if (strncmp(key, "tasuki.", 7) == 0 && value->type == PMIX_BYTE_OBJECT && path)
        tell(path, key, value->data.bo.size);
    read_fate(key, fate);
    keeps = strcmp(fate, "kept") == 0;
    if (keeps || strcmp(fate, "lost") == 0)
        return PMIX_SUCCESS;
    if (strcmp(fate, "refused") == 0)
        return PMIX_ERR_NOMEM;
    if (strcmp(fate, "text") == 0) {
        changed.type = PMIX_STRING;
        changed.data.string = (char *)(uintptr_t)"text";
    }
    if (strcmp(fate, "short") == 0)
        changed.data.bo.size--;
    return real(scope, key, &changed);
}
