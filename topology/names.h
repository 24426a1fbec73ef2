/* SPDX-License-Identifier: MIT */
/* Names of hosts, as people write many of them: "n[001-004,7],login". */
#ifndef TASUKI_TOPOLOGY_NAMES_H
#define TASUKI_TOPOLOGY_NAMES_H

/* In their order; neighbours that differ in the number at their end alone share brackets.
 * malloc'ed.
 */
char *names_compact(int n, const char *const *names);

#endif
