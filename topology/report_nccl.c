/* SPDX-License-Identifier: MIT */
/* The topology file that NCCL_TOPO_FILE names: system, cpu, pci, gpu, nvlink, nic, net. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "topology/distance.h"
#include "topology/node.h"
#include "topology/report.h"
#include "topology/shape.h"
#include "topology/xml.h"

static void indent(FILE *out, int depth)
{
    fprintf(out, "%*s", 2 * depth, "");
}

/* Generation and width that make this bandwidth, as sysfs words the speed. */
static void write_link(FILE *out, double bandwidth)
{
    static const struct { double lane; const char *speed; } speeds[] = {
        { 0.25e9, "2.5 GT/s PCIe" },   { 0.5e9, "5.0 GT/s PCIe" },
        { 0.985e9, "8.0 GT/s PCIe" },  { 1.969e9, "16.0 GT/s PCIe" },
        { 3.938e9, "32.0 GT/s PCIe" }, { 7.563e9, "64.0 GT/s PCIe" },
    };
    static const int widths[] = { 16, 8, 4, 2, 1 };

    for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++)
        for (size_t s = 0; s < sizeof(speeds) / sizeof(speeds[0]); s++) {
            double ratio = bandwidth / (speeds[s].lane * widths[w]);

            if (ratio > 0.97 && ratio < 1.03) {
                fprintf(out, " link_speed=\"%s\" link_width=\"%d\"", speeds[s].speed,
                        widths[w]);
                return;
            }
        }
    fputs(" link_speed=\"\" link_width=\"0\"", out);
}

/* NCCL knows switches of NVLinks by this class, GPUs by theirs. */
static void write_nvlinks(FILE *out, const struct topo_gpu *gpu, int depth)
{
    for (int i = 0; i < gpu->n_links; i++) {
        const struct topo_nvlink *l = &gpu->links[i];
        bool first = l->up == 1 && l->address[0];
        int count = 0;

        for (int j = 0; j < gpu->n_links; j++) {
            bool same = gpu->links[j].up == 1 && strcmp(gpu->links[j].address, l->address) == 0;

            count += same;
            first = first && !(same && j < i);
        }
        if (!first)
            continue;
        indent(out, depth);
        fputs("<nvlink target=\"", out);
        xml_text(out, l->address);
        fprintf(out, "\" count=\"%d\" tclass=\"%s\"/>\n", count,
                l->remote == TOPO_REMOTE_SWITCH ? "0x068000"
                : l->remote == TOPO_REMOTE_CPU  ? "0x068001"
                                                : "0x030200");
    }
}

static void write_gpu(FILE *out, const struct topo_node *node, int index, int depth)
{
    const struct topo_gpu *gpu = &node->gpus[index];

    indent(out, depth);
    fprintf(out, "<gpu dev=\"%d\"", index);
    if (gpu->compute >= 0)
        fprintf(out, " sm=\"%d\"", gpu->compute);
    fputs(">\n", out);
    write_nvlinks(out, gpu, depth + 1);
    indent(out, depth);
    fputs("</gpu>\n", out);
}

/* "0000:0000:00c0:0001" without the colons. */
static void write_guid(FILE *out, const char *guid)
{
    if (!*guid)
        fputc('0', out);
    for (; *guid; guid++)
        if (isxdigit((unsigned char)*guid))
            fputc(*guid, out);
}

/* All ports of the adapter at this address. */
static void write_nets(FILE *out, const struct topo_node *node, const char *address, int depth)
{
    int *rails, n = topo_rails(node, &rails);

    indent(out, depth);
    fputs("<nic>\n", out);
    for (int i = 0; i < n; i++) {
        const struct topo_nic *nic = &node->nics[rails[i]];

        if (strcmp(nic->address, address) != 0)
            continue;
        indent(out, depth + 1);
        fputs("<net name=\"", out);
        xml_text(out, nic->name);
        fprintf(out, "\" dev=\"%d\" speed=\"%.0f\" port=\"%d\" guid=\"0x", i,
                nic->bandwidth * 8 / 1e6, nic->port > 0 ? nic->port : 1);
        write_guid(out, nic->guid);
        fputs("\"/>\n", out);
    }
    indent(out, depth);
    fputs("</nic>\n", out);
    free(rails);
}

static bool is_nic(const struct topo_node *node, const char *address)
{
    int *rails, n = topo_rails(node, &rails);
    bool found = false;

    for (int i = 0; i < n; i++)
        found |= strcmp(node->nics[rails[i]].address, address) == 0;
    free(rails);
    return found;
}

static bool has_leaf(const struct topo_node *node, int pci)
{
    const struct topo_pci *p = &node->pcis[pci];

    if (p->kind == TOPO_PCI_DEVICE)
        return topo_node_find_gpu(node, p->address) >= 0 || is_nic(node, p->address);
    for (int i = pci + 1; i < node->n_pcis; i++)
        if (node->pcis[i].parent == pci && has_leaf(node, i))
            return true;
    return false;
}

static void write_children(FILE *out, const struct topo_node *node, int parent, int depth);

static void write_pci(FILE *out, const struct topo_node *node, int pci, int depth)
{
    const struct topo_pci *p = &node->pcis[pci];
    int gpu = topo_node_find_gpu(node, p->address);

    indent(out, depth);
    fputs("<pci busid=\"", out);
    xml_text(out, p->address);
    fprintf(out, "\" class=\"0x%04x00\" vendor=\"0x%04x\" device=\"0x%04x\"",
            (unsigned)p->class, (unsigned)p->vendor, (unsigned)p->device);
    write_link(out, p->bandwidth);
    fputs(">\n", out);
    if (p->kind == TOPO_PCI_BRIDGE)
        write_children(out, node, pci, depth + 1);
    else if (gpu >= 0)
        write_gpu(out, node, gpu, depth + 1);
    else
        write_nets(out, node, p->address, depth + 1);
    indent(out, depth);
    fputs("</pci>\n", out);
}

/* On the way down from the host bridge come a root port, the upstream port of a switch, one of
 * its downstream ports, and so on. NCCL counts the switch once: by its upstream port.
 */
static bool is_port(const struct topo_node *node, int pci)
{
    int depth = 0;

    if (node->pcis[pci].kind != TOPO_PCI_BRIDGE)
        return false;
    for (int up = node->pcis[pci].parent; up >= 0; up = node->pcis[up].parent)
        depth++;
    return depth % 2 == 1;
}

static void write_children(FILE *out, const struct topo_node *node, int parent, int depth)
{
    for (int i = parent + 1; i < node->n_pcis; i++) {
        if (node->pcis[i].parent != parent || !has_leaf(node, i))
            continue;
        if (is_port(node, i))
            write_children(out, node, i, depth);
        else
            write_pci(out, node, i, depth);
    }
}

/* "0-3,8" as NCCL's mask of hexadecimal words. */
static void write_affinity(FILE *out, const struct topo_numa *numa)
{
    uint32_t words[2048] = { 0 };
    int n = 0, *cpus = NULL, top = 0;

    if (set_parse(numa->cpus, 65535, &n, &cpus))
        n = 0;
    for (int i = 0; i < n; i++) {
        words[cpus[i] / 32] |= (uint32_t)1 << cpus[i] % 32;
        top = cpus[i] / 32;
    }
    for (int i = top; i >= 0; i--)
        fprintf(out, "%08x%s", words[i], i ? "," : "");
    free(cpus);
}

static void write_cpu(FILE *out, const struct topo_node *node, const struct topo_numa *numa)
{
    fprintf(out, "  <cpu numaid=\"%d\" affinity=\"", numa->id);
    write_affinity(out, numa);
    fputs("\" arch=\"", out);
    xml_text(out, strcmp(node->arch, "aarch64") == 0 ? "arm64" : node->arch);
    fputs("\" vendor=\"", out);
    xml_text(out, node->cpu_vendor);
    fputc('"', out);
    if (node->cpu_family >= 0 && node->cpu_model >= 0)
        fprintf(out, " familyid=\"%d\" modelid=\"%d\"", node->cpu_family, node->cpu_model);
    fputs(">\n", out);
    for (int i = 0; i < node->n_pcis; i++)
        if (node->pcis[i].parent < 0 && node->pcis[i].numa == numa->id && has_leaf(node, i))
            write_children(out, node, i, 2);
    fputs("  </cpu>\n", out);
}

char *report_nccl(const struct topo_node *node, struct err *err)
{
    char *text = NULL;
    size_t size;
    FILE *out;

    if (node->n_pcis == 0 || node->n_numas == 0) {
        err_set(err, "%s: the PCI tree was not collected, without which NCCL's file has "
                "nothing", node->host);
        return NULL;
    }
    out = open_memstream(&text, &size);
    if (!out)
        return mem_strdup("");
    fputs("<system version=\"1\">\n", out);
    for (int i = 0; i < node->n_numas; i++)
        write_cpu(out, node, &node->numas[i]);
    fputs("</system>\n", out);
    fclose(out);
    return text;
}
