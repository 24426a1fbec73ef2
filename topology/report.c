/* SPDX-License-Identifier: MIT */
#include "topology/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/cluster.h"

static const char *const origins[] = { "measured", "reported", "table" };

static char *scaled(double value, double step, const char *const *units, int n,
                    char text[24])
{
    int unit = 0;

    /* One that rounds to 1000 of a unit is 1 of the next. */
    while (unit < n - 1 && value >= step * 0.9995) {
        value /= step;
        unit++;
    }
    snprintf(text, 24, "%.3g %s", value, units[unit]);
    return text;
}

char *report_bytes(double bytes, char text[24])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };

    if (isinf(bytes))
        return strcpy(text, "unlimited");
    return scaled(bytes, 1024, units, 6, text);
}

char *report_rate(double bytes_per_second, char text[24])
{
    static const char *const units[] = { "B/s", "KB/s", "MB/s", "GB/s", "TB/s" };

    if (isinf(bytes_per_second))
        return strcpy(text, "unlimited");
    return scaled(bytes_per_second, 1000, units, 5, text);
}

char *report_time(double seconds, char text[24])
{
    static const char *const units[] = { "ns", "us", "ms" };

    if (seconds >= 0.9995)
        snprintf(text, 24, "%.3g s", seconds);
    else
        scaled(seconds * 1e9, 1000, units, 3, text);
    return text;
}

/* "1 core", "2 cores" */
static void count(FILE *out, int n, const char *thing)
{
    fprintf(out, "%d %s%s", n, thing, n == 1 ? "" : "s");
}

/* How many siblings from 'place' on are alike; '*next' is what follows them. */
static int run_of(const struct cluster *cluster, int place, int *last, int *next)
{
    int n = 1;

    *last = place;
    *next = cluster_end(cluster, place);
    while (*next < cluster->n_places &&
           cluster->places[*next].parent == cluster->places[place].parent &&
           cluster_alike(cluster, place, *next)) {
        *last = *next;
        *next = cluster_end(cluster, *next);
        n++;
    }
    return n;
}

static void write_device(FILE *out, const struct cluster *cluster, int place)
{
    const struct cluster_device *d = cluster_device_at(cluster, place);
    char text[24];

    fprintf(out, "%s, %s", d->kind[0] ? d->kind : "any device", report_bytes(d->memory, text));
    if (d->cores > 0) {
        fputs(", ", out);
        count(out, d->cores, "core");
    }
    if (d->flops >= 1e12)
        fprintf(out, ", %.3g TFLOP/s", d->flops / 1e12);
    else if (d->flops > 0)
        fprintf(out, ", %.3g GFLOP/s", d->flops / 1e9);
    for (int f = FACTORS_TF32; f < FACTORS; f++)
        if (d->product_flops[f] > 0)
            fprintf(out, ", %.3g in %s", d->product_flops[f] / 1e12, cluster_factors_names[f]);
}

static void write_place(FILE *out, const struct cluster *cluster, int place)
{
    const struct cluster_place *p = &cluster->places[place];
    char text[24];

    if (p->kind == CLUSTER_DEVICE) {
        write_device(out, cluster, place);
    } else {
        if (p->cores > 0) {
            count(out, p->cores, "core");
            fputs(", ", out);
        }
        fprintf(out, "%s between its parts", report_time(p->latency, text));
        if (p->eager.bytes > 0) {
            fprintf(out, ", %s", report_time(p->eager.latency, text));
            fprintf(out, " up to %s", report_bytes(p->eager.bytes, text));
        }
        fprintf(out, " (%s)", origins[p->latency_origin]);
    }
    if (p->kind == CLUSTER_SWITCH && isinf(p->up_bandwidth)) {
        fputs("; up not known, taken as no limit\n", out);
        return;
    }
    if (place > 0)
        fprintf(out, "; %s up", report_rate(p->up_bandwidth, text));
    if (place > 0 && isfinite(p->flow_bandwidth))
        fprintf(out, ", %s for one transfer", report_rate(p->flow_bandwidth, text));
    if (place > 0)
        fprintf(out, " (%s)", origins[p->origin]);
    fputc('\n', out);
}

static const char *name_of(const struct cluster *cluster, int place)
{
    const struct cluster_place *p = &cluster->places[place];

    return p->kind == CLUSTER_DEVICE ? cluster_device_at(cluster, place)->id : p->name;
}

static void write_children(FILE *out, const struct cluster *cluster, int parent, int indent)
{
    int end = cluster_end(cluster, parent), place = parent + 1;

    while (place < end) {
        int last, next, n = run_of(cluster, place, &last, &next);
        const char *one = name_of(cluster, place), *many = name_of(cluster, last);
        char *name = n == 1 ? mem_strdup(one) : n == 2 ? mem_printf("%s, %s", one, many)
                                                       : mem_printf("%s ... %s", one, many);

        fprintf(out, "%*s%-*s ", indent, "", indent < 28 ? 28 - indent : 1, name);
        free(name);
        if (n > 1)
            fprintf(out, "%d x ", n);
        write_place(out, cluster, place);
        write_children(out, cluster, place, indent + 2);
        place = next;
    }
}

static int count_kind(const struct cluster *cluster, enum cluster_kind kind)
{
    int n = 0;

    for (int i = 0; i < cluster->n_places; i++)
        n += cluster->places[i].kind == kind;
    return n;
}

static void write_storage(FILE *out, const struct cluster_storage *storage)
{
    char *text = storage_text(storage);

    fprintf(out, "  %-26s %s\n", "storage", text);
    free(text);
}

char *report_cluster(const struct cluster *cluster)
{
    static const char *const ways[] = {
        "an idle ring", "two idle trees", "chains in idle nodes and a ring of them",
        "ring, tree or hierarchy, idle",
    };
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    int nodes = count_kind(cluster, CLUSTER_NODE);

    if (!out)
        return mem_strdup("");
    fprintf(out, "%s: ", cluster->name);
    if (nodes > 0) {
        count(out, nodes, "node");
        fputs(", ", out);
    }
    count(out, cluster->n_devices, "device");
    fputc('\n', out);
    fprintf(out, "  %-26s ", "network");
    write_place(out, cluster, 0);
    write_children(out, cluster, 0, 4);
    if (cluster->sum_latency_factor != 1 || cluster->sum_bandwidth_factor != 1 ||
        cluster->sum_algorithm != ALLREDUCE_RING)
        fprintf(out, "  %-26s latency x %.3g, bytes x %.3g of %s, %.0f %% beside "
                "computing (%s)\n", "all-reduce over all", cluster->sum_latency_factor,
                cluster->sum_bandwidth_factor, ways[cluster->sum_algorithm],
                100 * cluster->sum_overlap,
                cluster->sum_source ? "table" : "measured");
    if (cluster->send_overlap < 1 || cluster->receive_overlap < 1)
        fprintf(out, "  %-26s sent %.0f %%, received %.0f %% beside computing (%s)\n", "messages",
                100 * cluster->send_overlap, 100 * cluster->receive_overlap,
                cluster->message_source ? "table" : "measured");
    if (storage_is_known(&cluster->storage))
        write_storage(out, &cluster->storage);
    if (cluster->source > 0)
        fprintf(out, "  %-26s %s\n", "source", cluster->sources[cluster->source - 1]);
    fclose(out);
    return text;
}
