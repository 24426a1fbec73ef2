/* SPDX-License-Identifier: MIT */
#include "topology/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/distance.h"
#include "topology/node.h"
#include "topology/pmix.h"
#include "topology/record.h"

#define LABEL 8         /* columns of the words on the left */

static void write_counted(FILE *out, int n, const char *thing)
{
    fprintf(out, "%d %s%s", n, thing, n == 1 ? "" : "s");
}

static void write_processors(FILE *out, const struct topo_node *node)
{
    fprintf(out, "  %-*s %s\n  %-*s ", LABEL, "CPU", node->cpu[0] ? node->cpu : "not known",
            LABEL, "");
    write_counted(out, node->packages, "package");
    fputs(", ", out);
    write_counted(out, node->numa_nodes, "NUMA node");
    fputs(", ", out);
    write_counted(out, node->cores, "core");
    fputs(", ", out);
    write_counted(out, node->pus, "thread");
    if (node->n_usable < node->pus)
        fprintf(out, " (%d for this process)", node->n_usable);
    if (node->flops > 0)
        fprintf(out, "; %.3g GFLOP/s float32 a core (table)", node->flops / 1e9);
    fputc('\n', out);
}

static void write_caches(FILE *out, const struct topo_node *node)
{
    char l2[24], l3[24];

    if (node->l2 <= 0 && node->l3 <= 0)
        return;
    fprintf(out, "  %-*s", LABEL, "caches");
    if (node->l2 > 0)
        fprintf(out, " L2 %s", report_bytes(node->l2, l2));
    if (node->l3 > 0)
        fprintf(out, "%s L3 %s", node->l2 > 0 ? "," : "", report_bytes(node->l3, l3));
    fputc('\n', out);
}

static void write_pcie(FILE *out, int gen, int width, int max_gen, int max_width)
{
    if (width <= 0)
        return;
    fputs(", PCIe", out);
    if (gen > 0)
        fprintf(out, " %d.0", gen);
    fprintf(out, " x%d", width);
    if (max_width > width || max_gen > gen)
        fprintf(out, " (of %d.0 x%d)", max_gen, max_width);
}

static int count_up(const struct topo_gpu *gpu)
{
    int n = 0;

    for (int i = 0; i < gpu->n_links; i++)
        n += gpu->links[i].up == 1;
    return n;
}

static void write_links(FILE *out, const struct topo_gpu *gpu)
{
    char rate[24];
    int up = count_up(gpu);

    if (gpu->n_links <= 0)
        return;
    fprintf(out, ", %d of %d NVLinks up", up, gpu->n_links);
    for (int i = 0; i < gpu->n_links; i++)
        if (gpu->links[i].up == 1 && gpu->links[i].bandwidth > 0) {
            fprintf(out, ", %s each way and link", report_rate(gpu->links[i].bandwidth, rate));
            break;
        }
}

static void write_health(FILE *out, const struct topo_gpu *gpu)
{
    if (gpu->ecc_uncorrected > 0)
        fprintf(out, ", %lld uncorrected ECC errors", (long long)gpu->ecc_uncorrected);
    if (gpu->remap_failure > 0)
        fputs(", a row could not be remapped", out);
    if (gpu->throttle > 0 && gpu->throttle & TOPO_THROTTLE_HARMFUL)
        fputs(", clocks are throttled", out);
}

static void write_migs(FILE *out, const struct topo_gpu *gpu)
{
    char memory[24];

    if (gpu->mig == 1 && gpu->n_migs == 0)
        fprintf(out, "  %-*s         MIG mode is on, there is no partition\n", LABEL, "");
    for (int i = 0; i < gpu->n_migs; i++) {
        const struct topo_mig *m = &gpu->migs[i];

        fprintf(out, "  %-*s         %s", LABEL, "", m->name[0] ? m->name : "MIG");
        if (m->memory > 0)
            fprintf(out, ", %s", report_bytes(m->memory, memory));
        fprintf(out, ", %s\n", m->uuid[0] ? m->uuid : "UUID not known");
    }
}

/* All but where it is, which the matrix says. */
static char *describe(const struct topo_node *node, const struct topo_gpu *gpu)
{
    const struct topo_said *driver = topo_node_said(node, "nvml");
    char *text = NULL, memory[24];
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return mem_strdup("");
    fputs(gpu->name[0] ? gpu->name : "name not known", out);
    if (gpu->memory > 0)
        fprintf(out, ", %s", report_bytes(gpu->memory, memory));
    if (gpu->compute >= 0)
        fprintf(out, ", compute %d.%d", gpu->compute / 10, gpu->compute % 10);
    write_pcie(out, gpu->pcie_gen, gpu->pcie_width, gpu->pcie_max_gen, gpu->pcie_max_width);
    write_links(out, gpu);
    write_health(out, gpu);
    if (driver && driver->state == TOPO_USED && !gpu->seen)
        fputs("; the driver does not show it to this process", out);
    fputc('\n', out);
    write_migs(out, gpu);
    for (int i = 0; i < gpu->n_faults; i++)
        fprintf(out, "  %-*s         not collected: %s\n", LABEL, "", gpu->faults[i]);
    fclose(out);
    return text;
}

/* GPUs that are alike share a line. */
static void write_gpus(FILE *out, const struct topo_node *node)
{
    char *text, *next = node->n_gpus ? describe(node, &node->gpus[0]) : NULL, name[32];
    int first = 0;

    if (node->n_gpus == 0)
        fprintf(out, "  %-*s none found\n", LABEL, "GPUs");
    for (int i = 0; i < node->n_gpus; i++) {
        text = next;
        next = i + 1 < node->n_gpus ? describe(node, &node->gpus[i + 1]) : NULL;
        if (!next || strcmp(text, next) != 0) {
            int n = snprintf(name, sizeof(name), "GPU%d", first);

            if (i > first)
                snprintf(name + n, sizeof(name) - (size_t)n, "-%d", i);
            fprintf(out, "  %-*s %-7s %s", LABEL, first ? "" : "GPUs", name, text);
            first = i + 1;
        }
        free(text);
    }
}

static void write_nic(FILE *out, const struct topo_node *node, const struct topo_nic *nic,
                      const char *label)
{
    char text[24];

    fprintf(out, "  %-*s %s", LABEL, label, nic->name);
    if (nic->port > 1)
        fprintf(out, " port %d", nic->port);
    if (nic->address[0])
        fprintf(out, " at %s", nic->address);
    if (nic->numa >= 0 && node->numa_nodes > 1)
        fprintf(out, ", near NUMA node %d", nic->numa);
    if (nic->fabric[0])
        fprintf(out, ", %s", nic->fabric);
    if (nic->hca && nic->state[0])
        fprintf(out, ", %s", nic->state);
    if (nic->bandwidth > 0)
        fprintf(out, ", %s (reported)", report_rate(nic->bandwidth, text));
    if (nic->pcie_width > 0 && nic->pcie_max_width > nic->pcie_width)
        fprintf(out, ", PCIe x%d (of x%d)", nic->pcie_width, nic->pcie_max_width);
    if (nic->pcie_speed > 0 && nic->pcie_max_speed > nic->pcie_speed)
        fprintf(out, ", PCIe %g GT/s (of %g)", nic->pcie_speed, nic->pcie_max_speed);
    fputc('\n', out);
}

static void write_nics(FILE *out, const struct topo_node *node)
{
    if (node->n_nics == 0)
        fprintf(out, "  %-*s none found\n", LABEL, "NICs");
    for (int i = 0; i < node->n_nics; i++)
        write_nic(out, node, &node->nics[i], i ? "" : "NICs");
}

static void write_said(FILE *out, const struct topo_node *node)
{
    if (node->driver[0])
        fprintf(out, "  %-*s %s; %s%s%s\n", LABEL, "driver", node->driver,
                node->gpudirect == 1   ? "GPUDirect by "
                : node->gpudirect == 0 ? "no GPUDirect: "
                                       : "GPUDirect was not collected",
                node->gpudirect < 0 && node->gpudirect_by[0] ? ": " : "", node->gpudirect_by);
    for (int i = 0; i < node->n_said; i++)
        if (node->said[i].state == TOPO_FAILED)
            fprintf(out, "  %-*s %s: %s: nothing was collected from it\n", LABEL, "note",
                    node->said[i].name, node->said[i].text);
    for (int i = 0; i < node->n_notes; i++)
        fprintf(out, "  %-*s %s\n", LABEL, "note", node->notes[i]);
    if (node->container[0]) {
        char *versions = pmix_versions_text(node->pmix_client, node->pmix_server);

        fprintf(out, "  %-*s %s\n", LABEL, "PMIx", versions);
        free(versions);
    }
}

static const struct topo_numa *numa_called(const struct topo_node *node, int id)
{
    for (int i = 0; i < node->n_numas; i++)
        if (node->numas[i].id == id)
            return &node->numas[i];
    return NULL;
}

static int width_of_cpus(const struct topo_node *node)
{
    size_t width = 4;

    for (int i = 0; i < node->n_numas; i++)
        if (strlen(node->numas[i].cpus) > width)
            width = strlen(node->numas[i].cpus);
    return (int)width;
}

static void write_row(FILE *out, const struct topo_node *node, int gpu, int n_rails,
                      const int *rails)
{
    const struct topo_numa *numa = numa_called(node, node->gpus[gpu].numa);
    int rail = topo_nearest_rail(node, gpu);
    char word[16], name[16];

    snprintf(name, sizeof(name), "GPU%d", gpu);
    fprintf(out, "  %-6s", name);
    for (int i = 0; i < node->n_gpus; i++)
        fprintf(out, " %-5s", topo_distance_word(topo_distance_gpus(node, gpu, i), word));
    for (int i = 0; i < n_rails; i++)
        fprintf(out, " %-5s", topo_distance_word(topo_distance_nic(node, gpu, rails[i]), word));
    fprintf(out, " %-12s %-*s ", node->gpus[gpu].address[0] ? node->gpus[gpu].address : "?",
            width_of_cpus(node), numa && numa->cpus[0] ? numa->cpus : "?");
    if (node->gpus[gpu].numa >= 0)
        fprintf(out, "%-5d", node->gpus[gpu].numa);
    else
        fprintf(out, "%-5s", "?");
    if (rail >= 0)
        fprintf(out, " NIC%d", rail);
    else
        fprintf(out, " none");
    fputc('\n', out);
}

static void write_head(FILE *out, const struct topo_node *node, int n_rails)
{
    char name[16];

    fprintf(out, "\n  %-6s", "");
    for (int i = 0; i < node->n_gpus + n_rails; i++) {
        bool gpu = i < node->n_gpus;

        snprintf(name, sizeof(name), "%s%d", gpu ? "GPU" : "NIC", gpu ? i : i - node->n_gpus);
        fprintf(out, " %-5s", name);
    }
    fprintf(out, " %-12s %-*s %-5s %s\n", "PCI address", width_of_cpus(node), "CPUs", "NUMA",
            "nearest NIC");
}

/* GPUs against GPUs and NICs, and what each is best bound to. */
static void write_matrix(FILE *out, const struct topo_node *node)
{
    int *rails, n_rails = topo_rails(node, &rails);

    if (node->n_gpus > 0) {
        write_head(out, node, n_rails);
        for (int i = 0; i < node->n_gpus; i++)
            write_row(out, node, i, n_rails, rails);
        for (int i = 0; i < n_rails; i++)
            fprintf(out, "%s  NIC%d: %s%s", i % 4 ? "" : "\n", i, node->nics[rails[i]].name,
                    i % 4 == 3 || i == n_rails - 1 ? "" : ",");
        fprintf(out, "%s%s", n_rails ? "\n\n" : "\n", topo_distance_legend());
    }
    free(rails);
}

char *report_node(const struct topo_node *node)
{
    char *text = NULL, memory[24];
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return mem_strdup("");
    fprintf(out, "node %s (from %s)\n", node->host, node->source);
    write_processors(out, node);
    write_caches(out, node);
    fprintf(out, "  %-*s %s\n", LABEL, "memory", report_bytes(node->memory, memory));
    write_gpus(out, node);
    write_nics(out, node);
    write_said(out, node);
    write_matrix(out, node);
    fclose(out);
    return text;
}

/* "n1, n2, n3 ... n8 (8 nodes alike)"; nothing for one. */
static void write_hosts(FILE *out, const struct topo_record *record, int kind)
{
    int n = topo_record_count(record, kind, NULL), seen = 0;

    if (n < 2)
        return;
    fprintf(out, "%d nodes alike:", n);
    for (int i = 0; i < topo_record_hosts(record); i++) {
        if (topo_record_kind(record, i) != kind)
            continue;
        seen++;
        if (seen <= 3 || seen == n)
            fprintf(out, "%s %s", seen == n && n > 4 ? " ..." : seen > 1 ? "," : "",
                    topo_record_host(record, i));
    }
    fputs("; the first of them:\n", out);
}

char *report_record(const struct topo_record *record, struct err *err)
{
    char *text = NULL, *one;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    for (int k = 0; out && k < topo_record_kinds(record); k++) {
        struct topo_node *node;
        int first;

        topo_record_count(record, k, &first);
        node = topo_record_node(record, first, err);
        if (!node) {
            fclose(out);
            free(text);
            return NULL;
        }
        write_hosts(out, record, k);
        one = report_node(node);
        fprintf(out, "%s\n", one);
        free(one);
        topo_node_free(node);
    }
    if (out)
        fclose(out);
    return text ? text : mem_strdup("");
}
