/* SPDX-License-Identifier: MIT */
/* Which versions of PMIx understand each other: a container brings the client's, and the launcher
 * outside has the server's.
 *
 * Source: OpenPMIx's documentation, "Version Numbers and Binary Compatibility", section
 * "Cross-Version Compatibility": a server takes clients of 2.1 and later, a client takes servers of
 * 3.2 and later. Releases of one series (the same first two numbers) are compatible.
 */
#ifndef TASUKI_TOPOLOGY_PMIX_H
#define TASUKI_TOPOLOGY_PMIX_H

/* "client 4.2.2, server none"; malloc'ed. "" is none. */
char *pmix_versions_text(const char *client, const char *server);
/* What keeps them from understanding each other, malloc'ed; NULL: nothing, or one is not known. */
char *pmix_limit(const char *client, const char *server);

#endif
