/* SPDX-License-Identifier: MIT */
/* The cluster model: a tree of places with wires between them.
 *
 * Leaves are devices. Every place but the root has an uplink to its parent: a full-duplex
 * wire with a bandwidth in each direction, shared by everything below the place that talks to
 * anything above it. A transfer between two devices climbs to their lowest common ancestor;
 * it takes the latency of that ancestor plus bytes over the smallest bandwidth on the way.
 * Short ones may start sooner: MPI sends them without asking first.
 *
 * A wire may be several side by side: a node has as many as it has rails. Then one transfer is
 * limited to one of them, and several together get up to all.
 */
#ifndef TASUKI_TOPOLOGY_CLUSTER_H
#define TASUKI_TOPOLOGY_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "topology/allreduce.h"
#include "topology/efficiency.h"
#include "topology/storage.h"

struct err;
struct json_reader;

enum cluster_kind {
    CLUSTER_ROOT, CLUSTER_SWITCH, CLUSTER_NODE, CLUSTER_ISLAND, CLUSTER_DEVICE
};

enum origin { ORIGIN_MEASURED, ORIGIN_REPORTED, ORIGIN_TABLE };

/* Messages of up to so many bytes, 0: none, take another latency and are copied once more. */
struct cluster_eager {
    double bytes, latency;
    double copy_bandwidth;  /* INFINITY: the copy costs nothing */
};

struct cluster_place {
    enum cluster_kind kind;
    char *name;             /* "n1", "island0", "leaf2" */
    int parent;             /* -1: the root, which is place 0; parents come before children */
    double up_bandwidth;    /* bytes/s each way on the wire to the parent; INFINITY: no limit */
    double flow_bandwidth;  /* of it, what one transfer gets; INFINITY: all */
    double latency;         /* seconds between two children of this place */
    struct cluster_eager eager;             /* likewise */
    enum origin origin, latency_origin;     /* of the wire, of latency and eager */
    int source;             /* which document that is from: one of 'sources', from 1; 0: none */
    int cores;              /* CPU cores that all below it share; 0: not limited here */
};

/* What factors of products (MatMul, Conv, Attention) may be rounded to, for the units of a GPU that take
 * no others.
 */
enum cluster_factors { FACTORS_FLOAT32, FACTORS_TF32, FACTORS_BF16, FACTORS_FP16, FACTORS };
/* Of --precision, and of the device's key; from FACTORS_TF32 on. */
extern const char *const cluster_factors_names[FACTORS], *const cluster_factors_keys[FACTORS];
extern const char *const cluster_efficiency_keys[FACTORS];

struct cluster_device {
    char *id;               /* "n1/cpu0", "n1/gpu3"; "0" … for flat: */
    int place;              /* its leaf */
    int node;               /* place of kind CLUSTER_NODE above it; the root for flat: */
    char *kind;             /* "cpu", "V100-SXM2-32GB": which cost file describes it; "": any */
    double memory;          /* bytes it may use; INFINITY: no limit was given */
    double flops;           /* float32 operations/s, 0: unknown (roofline) */
    double product_flops[FACTORS];  /* the same of products with such factors; float32's is 0 */
    double memory_bandwidth;/* bytes/s, 0: unknown */
    int efficiency[FACTORS];/* what it reaches of both: one of 'efficiencies', from 1; 0: as of float32, all */
    int cores;              /* CPU devices: threads it runs; 0 otherwise */
    int rank;               /* rank that drives it in this run, -1: none yet */
};

struct cluster {
    char *name;             /* "flat:16,…", the file's name, "this allocation" */
    int n_places, n_devices;
    struct cluster_place *places;
    struct cluster_device *devices;     /* in tree order: neighbours are close */
    int n_slots, *slots;    /* a hash table of their ids: index + 1; 0: free */
    enum allreduce sum_algorithm;
    /* An all-reduce takes so many times longer than that on idle wires: its parts that are
     * latency and that are bytes. 1: not measured.
     */
    double sum_latency_factor, sum_bandwidth_factor;
    /* How much of its time a rank can compute while its all-reduce is under way: 1 where a
     * device of its own moves the bytes, 0 where the computing thread does.
     */
    double sum_overlap;
    double send_overlap, receive_overlap;   /* likewise, while it sends or receives a message */
    int message_source;     /* as sum_source */
    int sum_source;         /* where these three come from, as in cluster_place; 0: measured */
    struct cluster_storage storage;
    double start_up, start_up_node;     /* seconds of a run before its first step, and for each node; 0 */
    int start_up_source;
    int source;             /* of the machine as a whole, as in cluster_place */
    int n_sources;
    char **sources;
    int n_efficiencies;
    struct efficiency *efficiencies;    /* no two are the same */
};

struct cluster_link {
    double bandwidth;       /* bytes/s of one transfer, alone on the wires */
    double latency;         /* seconds */
    struct cluster_eager eager;
};

/* "flat:16,bandwidth=1e9,latency=0,memory=16e9", "tree:4x8,inside=150e9,across=12.5e9,
 * memory=32e9", a machine and a number of nodes such as "dgx-h100:16" (machine.h), or the path
 * of a topology file (tasuki-topo, version 1).
 *
 * flat: needs bandwidth and takes latency, memory, flops, flops-tf32, flops-bf16, flops-fp16,
 * memory-bandwidth. tree: needs inside and across and takes the same and inside-latency.
 * Sizes take K, M, G, T (1024) and KB, MB, GB, TB (1000). Left out: no latency, no limit.
 */
struct cluster *cluster_open(const char *spec, struct err *err);
void cluster_free(struct cluster *cluster);

/* The topology file: read strictly, written whole. Only so many of the nodes are built, under
 * as few switches as possible; 0: all. More than the file describes are an error (EXIT_USAGE),
 * unless it says that it may be extended.
 */
struct cluster *cluster_from_json(const char *path, const json_t *json, int64_t nodes,
                                  struct err *err);
json_t *cluster_to_json(const struct cluster *cluster);
/* Of an object with figures: its key "eager", or none; and the value of that key. */
int cluster_eager_read(struct json_reader *r, struct cluster_eager *eager, struct err *err);
json_t *cluster_eager_json(const struct cluster_eager *eager);
int cluster_save(const struct cluster *cluster, const char *path, struct err *err);

/* Build one by hand: places before what they contain, devices in tree order. The index is
 * returned; the strings are copied. A new root has no children; a device makes its own leaf
 * place, with that uplink, whole for each transfer. The other fields are the caller's to fill.
 */
struct cluster *cluster_new(const char *name);
int cluster_add_place(struct cluster *cluster, enum cluster_kind kind, const char *name,
                      int parent, double up_bandwidth);
int cluster_add_device(struct cluster *cluster, const char *id, const char *kind, int parent,
                       double up_bandwidth);
/* A document; returns its number for 'source'. */
int cluster_add_source(struct cluster *cluster, const char *text);
/* Returns its number for the 'efficiency' of a device. */
int cluster_add_efficiency(struct cluster *cluster, const struct efficiency *efficiency);
/* NULL: it reaches all. */
const struct efficiency *cluster_efficiency(const struct cluster *cluster,
                                            const struct cluster_device *device,
                                            enum cluster_factors factors);
/* A copy with the first so many devices (>= 1) and the places above them. */
struct cluster *cluster_first(const struct cluster *cluster, int devices);
/* Is it a cluster that the functions below may be asked about: at most 8 levels below the
 * root, devices in tree order with ids of their own, figures in range?
 */
int cluster_check(const struct cluster *cluster, struct err *err);

/* The link between two devices (a == b: infinite bandwidth, no latency). */
struct cluster_link cluster_link(const struct cluster *cluster, int a, int b);
/* Seconds before so many bytes are on the wires, for which they then need bytes / bandwidth. */
double cluster_link_start(const struct cluster_link *link, double bytes);
/* The least that any message needs to start. */
double cluster_link_least(const struct cluster_link *link);
#define CLUSTER_WIRES 16    /* on a way, at most */
/* The places whose uplinks a transfer from a to b uses: written to 'wires';
 * climbing ones first, 'up' of them, then the descending ones. Returns how many in all.
 */
int cluster_route(const struct cluster *cluster, int a, int b, int wires[CLUSTER_WIRES],
                  int *up);
/* Seconds for an all-reduce of 'bytes' over these devices by the cluster's algorithm (see
 * allreduce.h), nothing else running, by the measured factors.
 */
double cluster_allreduce_time(const struct cluster *cluster, int n, const int *devices,
                              double bytes);
/* The place whose cores a device shares with others: the highest above it that has some (nodes
 * that are virtual share those of their machine); the root where none has: then it has its own.
 */
int cluster_core_place(const struct cluster *cluster, int device);
/* Bytes/s each way between a device and the memory of its node, while all below the same wires do
 * the same; INFINITY where nothing says, as with flat:.
 */
double cluster_host_bandwidth(const struct cluster *cluster, const struct cluster_device *device);
/* How many levels below the root, which is 0. */
int cluster_depth(const struct cluster *cluster, int place);
/* One past the last place below 'place': those of a subtree are consecutive. */
int cluster_end(const struct cluster *cluster, int place);
/* Does what crosses them take as long, and are as many cores shared there? */
bool cluster_same_way(const struct cluster_place *a, const struct cluster_place *b);
/* Do the subtrees differ in nothing but names and ranks? */
bool cluster_alike(const struct cluster *cluster, int a, int b);
/* The kinds of its devices, each once, in their order: '*n' strings of the cluster, to be freed by
 * who asks.
 */
const char **cluster_kinds(const struct cluster *cluster, int *n);
/* Where devices are of several kinds: a sentence that names them, and the one that all are taken to
 * be ("": not known); malloc'ed, else NULL.
 */
char *cluster_mixed(const struct cluster *cluster, const char *taken);
/* The slowest device by its figures, operations before bytes; where they do not tell, the first
 * that has some.
 */
const struct cluster_device *cluster_slowest(const struct cluster *cluster);
/* Of one of its kinds. */
const struct cluster_device *cluster_slowest_of(const struct cluster *cluster, const char *kind);
/* Operations/s of products with such factors; 0: not known. */
double cluster_product_flops(const struct cluster_device *device, enum cluster_factors factors);
/* Nodes that have devices; a cluster without nodes is one. */
int cluster_nodes(const struct cluster *cluster);
/* The first device whose leaf is not before 'place'; n_devices: there is none. */
int cluster_device_from(const struct cluster *cluster, int place);
/* The device whose leaf is 'place', which must be one. */
const struct cluster_device *cluster_device_at(const struct cluster *cluster, int place);
int cluster_find_device(const struct cluster *cluster, const char *id);     /* -1 */

#endif
