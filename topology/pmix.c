/* SPDX-License-Identifier: MIT */
#include "topology/pmix.h"

#include <stdbool.h>
#include <stdio.h>

#include "base/mem.h"

static const struct series { int major, minor; } first_client = { 2, 1 }, first_server = { 3, 2 };

static bool read_series(const char *version, struct series *series)
{
    return sscanf(version, "%4d.%4d", &series->major, &series->minor) == 2;
}

static bool is_before(struct series a, struct series b)
{
    return a.major < b.major || (a.major == b.major && a.minor < b.minor);
}

char *pmix_versions_text(const char *client, const char *server)
{
    return mem_printf("client %s, server %s", *client ? client : "none",
                      *server ? server : "none");
}

char *pmix_limit(const char *client, const char *server)
{
    struct series c, s;

    if (!read_series(client, &c) || !read_series(server, &s) ||
        (c.major == s.major && c.minor == s.minor))
        return NULL;
    if (is_before(c, first_client))
        return mem_printf("servers of another series take clients from %d.%d on",
                          first_client.major, first_client.minor);
    if (is_before(s, first_server))
        return mem_printf("clients of another series take servers from %d.%d on",
                          first_server.major, first_server.minor);
    return NULL;
}
