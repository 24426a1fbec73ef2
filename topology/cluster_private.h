/* SPDX-License-Identifier: MIT */
/* Between cluster_file.c, which reads topology files, and cluster_write.c. */
#ifndef TASUKI_TOPOLOGY_CLUSTER_PRIVATE_H
#define TASUKI_TOPOLOGY_CLUSTER_PRIVATE_H

/* By enum cluster_kind, by enum origin. */
extern const char *const cluster_kind_names[];
extern const char *const cluster_origin_names[];

#endif
