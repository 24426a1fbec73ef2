/* SPDX-License-Identifier: MIT */
#include "topology/node.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "topology/node_read.h"
#include "topology/node_shape.h"

#define NVIDIA 0x10de       /* of PCI */

void topo_node_set_text(char **text, const char *value)
{
    char *copy = mem_strdup(value);

    free(*text);
    *text = copy;
}

struct topo_node *topo_node_new(void)
{
    struct topo_node *node = mem_new(1, sizeof(*node));

    shape_init(&topo_node_shape, node);
    return node;
}

void topo_node_free(struct topo_node *node)
{
    if (!node)
        return;
    shape_clear(&topo_node_shape, node);
    free(node);
}

struct topo_numa *topo_node_add_numa(struct topo_node *node, int id)
{
    struct topo_numa *numa = shape_push(&topo_field_numas, node);

    numa->id = id;
    return numa;
}

struct topo_pci *topo_node_add_pci(struct topo_node *node, enum topo_pci_kind kind,
                                   const char *address)
{
    struct topo_pci *pci = shape_push(&topo_field_pcis, node);

    pci->kind = kind;
    topo_node_set_text(&pci->address, address);
    return pci;
}

struct topo_gpu *topo_node_add_gpu(struct topo_node *node, const char *address)
{
    struct topo_gpu *gpu = shape_push(&topo_field_gpus, node);

    topo_node_set_text(&gpu->address, address);
    return gpu;
}

static int compare_addresses(const void *a, const void *b)
{
    const struct topo_gpu *x = a, *y = b;
    size_t n = strlen(x->address), m = strlen(y->address);

    /* Longer ones are of higher domains. */
    return n != m ? (n > m) - (n < m) : strcmp(x->address, y->address);
}

void topo_node_sort_gpus(struct topo_node *node)
{
    if (node->n_gpus > 1)
        qsort(node->gpus, (size_t)node->n_gpus, sizeof(*node->gpus), compare_addresses);
}

struct topo_nic *topo_node_add_nic(struct topo_node *node, const char *name, int port)
{
    struct topo_nic *nic = shape_push(&topo_field_nics, node);

    topo_node_set_text(&nic->name, name);
    nic->port = port;
    return nic;
}

struct topo_nvlink *topo_gpu_add_link(struct topo_gpu *gpu, int number)
{
    struct topo_nvlink *link = shape_push(&topo_field_links, gpu);

    link->link = number;
    link->remote = TOPO_REMOTE_UNKNOWN;
    return link;
}

struct topo_mig *topo_gpu_add_mig(struct topo_gpu *gpu, const char *uuid)
{
    struct topo_mig *mig = shape_push(&topo_field_migs, gpu);

    topo_node_set_text(&mig->uuid, uuid);
    return mig;
}

static char *worded(const char *format, va_list args)
{
    char text[1024];

    vsnprintf(text, sizeof(text), format, args);
    return mem_strdup(text);
}

void topo_gpu_fault(struct topo_gpu *gpu, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    *(char **)mem_push((void **)&gpu->faults, &gpu->n_faults, sizeof(char *)) =
        worded(format, args);
    va_end(args);
}

void topo_node_note(struct topo_node *node, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    *(char **)mem_push((void **)&node->notes, &node->n_notes, sizeof(char *)) =
        worded(format, args);
    va_end(args);
}

const struct topo_said *topo_node_said(const struct topo_node *node, const char *source)
{
    for (int i = 0; i < node->n_said; i++)
        if (strcmp(node->said[i].name, source) == 0)
            return &node->said[i];
    return NULL;
}

void topo_node_say(struct topo_node *node, const char *source, enum topo_state state,
                   const char *format, ...)
{
    struct topo_said *said = (struct topo_said *)topo_node_said(node, source);
    va_list args;

    if (!said)
        said = shape_push(&topo_field_said, node);
    topo_node_set_text(&said->name, source);
    said->state = (int)state;
    free(said->text);
    va_start(args, format);
    said->text = worded(format, args);
    va_end(args);
}

int topo_pci_address(const char *text, char address[32])
{
    unsigned domain, bus, device, function;
    char rest;

    if (sscanf(text, "%8x:%2x:%2x.%1x%c", &domain, &bus, &device, &function, &rest) != 4)
        return -1;
    snprintf(address, 32, "%04x:%02x:%02x.%x", domain, bus, device, function);
    return 0;
}

int topo_node_find_pci(const struct topo_node *node, const char *address)
{
    for (int i = 0; i < node->n_pcis && *address; i++)
        if (strcmp(node->pcis[i].address, address) == 0)
            return i;
    return -1;
}

bool topo_node_is_nvidia(const struct topo_node *node, const struct topo_gpu *gpu)
{
    int pci = topo_node_find_pci(node, gpu->address);

    return pci >= 0 && node->pcis[pci].vendor == NVIDIA;
}

int topo_node_find_gpu(const struct topo_node *node, const char *address)
{
    for (int i = 0; i < node->n_gpus && *address; i++)
        if (strcmp(node->gpus[i].address, address) == 0)
            return i;
    return -1;
}

const char *topo_p2p_text(char letter)
{
    switch (letter) {
    case 'K': return "";
    case 'C': return "the chipset does not support it";
    case 'G': return "the GPUs do not support it";
    case 'I': return "the way between the sockets does not support it";
    case 'D': return "it is disabled by a setting of the driver";
    case 'N': return "it is not supported";
    default: return "not known";
    }
}

int *topo_node_shown(const struct topo_node *node, int *n)
{
    int *shown = mem_new((size_t)node->n_gpus + 1, sizeof(*shown));

    *n = 0;
    for (int i = 0; i < node->n_visible; i++)
        shown[(*n)++] = node->visible[i];
    for (int i = 0; node->n_visible < 0 && i < node->n_gpus; i++)
        if (node->gpus[i].seen)
            shown[(*n)++] = i;
    return shown;
}

json_t *topo_node_to_json(const struct topo_node *node)
{
    return shape_to_json(&topo_node_shape, node);
}

/* What the tables cannot say: lists that point into lists. */
static int check_references(const struct topo_node *node, const char *what, struct err *err)
{
    for (int i = 0; i < node->n_pcis; i++) {
        const struct topo_pci *pci = &node->pcis[i];

        if (pci->parent >= i || (pci->parent >= 0 && pci->kind == TOPO_PCI_HOST) ||
            (pci->parent >= 0 && node->pcis[pci->parent].kind == TOPO_PCI_DEVICE))
            return err_set(err, "%s: pcis[%d].parent: not a bridge that stands before it",
                           what, i);
    }
    for (int i = 0; i < node->n_visible; i++)
        if (node->visible[i] >= node->n_gpus)
            return err_set(err, "%s: visible[%d]: there is no GPU %d", what, i,
                           node->visible[i]);
    for (int i = 0; i < node->n_gpus; i++)
        if (node->gpus[i].p2p[0] && (int)strlen(node->gpus[i].p2p) != node->n_gpus)
            return err_set(err, "%s: gpus[%d].p2p: expected a letter for each GPU", what, i);
    return 0;
}

struct topo_node *topo_node_from_json(const char *what, const json_t *json, struct err *err)
{
    struct json_reader r = { .file = what };
    struct topo_node *node;

    if (!json_is_object(json)) {
        err_set(err, "%s: expected an object", what);
        return NULL;
    }
    r.object = json;
    node = topo_node_new();
    if (shape_from_json(&topo_node_shape, node, &r, err) == 0 &&
        check_references(node, what, err) == 0)
        return node;
    topo_node_free(node);
    return NULL;
}
