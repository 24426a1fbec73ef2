/* SPDX-License-Identifier: MIT */
/* Errors on purpose: with TASUKI_FAKE_MUTATE="NAME K" the K-th time that the stand-in could make the
 * error of this name it does, to show that fake_watch.c sees it.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake_private.h"

bool fake_mutates(const char *name)
{
    static char wanted[32];
    static int at = -1;

    if (at < 0) {
        const char *text = getenv("TASUKI_FAKE_MUTATE");

        if (!text || sscanf(text, "%31s %d", wanted, &at) != 2 || at < 1)
            at = 0;
    }
    if (at < 1 || strcmp(name, wanted) != 0 || --at > 0)
        return false;
    fprintf(stderr, "fake GPU: %s, on purpose\n", name);
    return true;
}
