/* SPDX-License-Identifier: MIT */
#include "topology/node.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "topology/node_read.h"

#define XML_SECONDS 30          /* for the child that reads a foreign file */
#define XML_ANSWER (16 << 20)   /* bytes of its answer */
#define MOST_DEVICES 4096
#define MOST_PUS 65536

static const char *const device_kinds[] = { "gpu", "nic" };

void topo_node_set_text(char **text, const char *value)
{
    char *copy = mem_strdup(value);

    free(*text);
    *text = copy;
}

struct topo_device *topo_node_add_device(struct topo_node *node, enum topo_device_kind kind,
                                    const char *name, const char *address)
{
    struct topo_device *device =
        mem_push((void **)&node->devices, &node->n_devices, sizeof(*device));

    device->kind = kind;
    device->name = mem_strdup(name);
    device->address = mem_strdup(address);
    device->numa = -1;
    return device;
}

void topo_node_clear_devices(struct topo_node *node, enum topo_device_kind kind)
{
    int kept = 0;

    for (int i = 0; i < node->n_devices; i++) {
        if (node->devices[i].kind != kind) {
            node->devices[kept++] = node->devices[i];
            continue;
        }
        free(node->devices[i].name);
        free(node->devices[i].address);
    }
    /* mem_push() counts on a full array of a power of two: start it anew. */
    struct topo_device *old = node->devices;
    int n = kept;

    node->devices = NULL;
    node->n_devices = 0;
    for (int i = 0; i < n; i++)
        *(struct topo_device *)mem_push((void **)&node->devices, &node->n_devices,
                                        sizeof(*old)) = old[i];
    free(old);
}

static struct topo_node *topo_node_new(void)
{
    struct topo_node *node = mem_new(1, sizeof(*node));

    topo_node_set_text(&node->host, "");
    topo_node_set_text(&node->machine, "");
    topo_node_set_text(&node->cpu, "");
    topo_node_set_text(&node->source, "");
    return node;
}

void topo_node_free(struct topo_node *node)
{
    if (!node)
        return;
    for (int i = 0; i < node->n_devices; i++) {
        free(node->devices[i].name);
        free(node->devices[i].address);
    }
    free(node->devices);
    free(node->usable);
    free(node->host);
    free(node->machine);
    free(node->cpu);
    free(node->source);
    free(node);
}

/* The child: answer in JSON on 'out' and end, whatever happens. */
static void answer(const char *xml, int out)
{
    struct topo_node *node = topo_node_new();
    struct err err = { 0 };
    json_t *json;
    char *text = NULL;

    signal(SIGALRM, SIG_DFL);
    alarm(XML_SECONDS);
    json = topo_node_read_hwloc(node, xml, &err)
               ? json_pack("{s:s, s:i}", "error", err.text, "code", (int)err.code)
               : topo_node_to_json(node);
    if (json)
        text = json_dumps(json, JSON_COMPACT);
    for (const char *at = text; at && *at;) {
        ssize_t n = write(out, at, strlen(at));

        if (n <= 0)
            _exit(1);
        at += n;
    }
    _exit(0);
}

static char *read_all(int in)
{
    size_t used = 0, room = 65536;
    char *text = mem_new(room, 1);

    for (;;) {
        ssize_t n = read(in, text + used, room - used - 1);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || used > XML_ANSWER)
            break;
        used += (size_t)n;
        if (room - used < 2)
            text = mem_resize(text, room *= 2, 1);
    }
    text[used] = '\0';
    return text;
}

static struct topo_node *topo_node_from_answer(const char *xml, const char *text, int status,
                                     struct err *err)
{
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *error = json_object_get(json, "error");
    struct topo_node *node = NULL;

    if (WIFSIGNALED(status) || !json)
        err_set(err, "%s: hwloc could not read it (it ended by %s)", xml,
                WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "an error");
    else if (json_is_string(error))
        err_set(err, "%s", json_string_value(error));
    else
        node = topo_node_from_json(xml, json, err);
    json_decref(json);
    return node;
}

static struct topo_node *discover_apart(const char *xml, struct err *err)
{
    int ends[2], status = 0;
    struct topo_node *node;
    char *text;
    pid_t child;

    if (pipe(ends)) {
        err_set(err, "%s: pipe: %s", xml, strerror(errno));
        return NULL;
    }
    child = fork();
    if (child == 0)
        answer(xml, ends[1]);
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        err_set(err, "%s: fork: %s", xml, strerror(errno));
        return NULL;
    }
    text = read_all(ends[0]);
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    node = topo_node_from_answer(xml, text, status, err);
    free(text);
    return node;
}

struct topo_node *topo_node_discover(const char *xml, struct err *err)
{
    struct topo_node *node;

    /* hwloc's own way to be shown another machine. */
    if (!xml)
        xml = getenv("HWLOC_XMLFILE");
    if (xml && *xml)
        return discover_apart(xml, err);
    node = topo_node_new();
    topo_node_read_proc(node);
    if (topo_node_read_hwloc(node, NULL, err) == 0)
        return node;
    topo_node_free(node);
    return NULL;
}

json_t *topo_node_to_json(const struct topo_node *node)
{
    json_t *usable = json_array(), *devices = json_array();

    for (int i = 0; i < node->n_usable; i++)
        json_array_append_new(usable, json_integer(node->usable[i]));
    for (int i = 0; i < node->n_devices; i++) {
        const struct topo_device *d = &node->devices[i];

        json_array_append_new(devices,
                              json_pack("{s:s, s:s, s:s, s:i, s:f}", "kind",
                                        device_kinds[d->kind], "name", d->name, "address",
                                        d->address, "numa", d->numa, "bandwidth",
                                        d->bandwidth));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:o, s:o}",
                     "host", node->host, "machine", node->machine, "cpu", node->cpu, "source",
                     node->source, "packages", node->packages, "numa_nodes", node->numa_nodes,
                     "cores", node->cores, "pus", node->pus, "l2", node->l2, "l3", node->l3,
                     "memory", node->memory, "flops", node->flops, "usable", usable, "devices",
                     devices);
}

static int get_texts(struct json_reader *r, struct topo_node *node, struct err *err)
{
    const struct { const char *key; char **text; } texts[] = {
        { "host", &node->host }, { "machine", &node->machine }, { "cpu", &node->cpu },
        { "source", &node->source },
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *value;

        if (json_get_string(r, texts[i].key, true, NULL, &value, err))
            return -1;
        topo_node_set_text(texts[i].text, value);
    }
    return 0;
}

static int get_figures(struct json_reader *r, struct topo_node *node, struct err *err)
{
    const struct { const char *key; int *count; } counts[] = {
        { "packages", &node->packages }, { "numa_nodes", &node->numa_nodes },
        { "cores", &node->cores }, { "pus", &node->pus },
    };
    const struct { const char *key; double *value; } sizes[] = {
        { "l2", &node->l2 }, { "l3", &node->l3 }, { "memory", &node->memory },
        { "flops", &node->flops },
    };

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        int64_t value;

        if (json_get_int(r, counts[i].key, 0, MOST_PUS, NULL, &value, err))
            return -1;
        *counts[i].count = (int)value;
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (json_get_number(r, sizes[i].key, 0, 1e300, NULL, sizes[i].value, err))
            return -1;
    return 0;
}

static int get_usable(struct json_reader *r, struct topo_node *node, struct err *err)
{
    const json_t *array;
    size_t n;

    if (json_get_array(r, "usable", true, &array, err))
        return -1;
    n = json_array_size(array);
    if (n > MOST_PUS)
        return json_error(r, "usable", err, "%zu entries are too many", n);
    node->usable = mem_new(n, sizeof(*node->usable));
    for (size_t i = 0; i < n; i++) {
        const json_t *pu = json_array_get(array, i);

        if (!json_is_integer(pu) || json_integer_value(pu) < 0 ||
            json_integer_value(pu) >= MOST_PUS)
            return json_error(r, "usable", err, "expected numbers of PUs");
        node->usable[node->n_usable++] = (int)json_integer_value(pu);
    }
    return 0;
}

static int get_device(struct json_reader *r, struct topo_node *node, struct err *err)
{
    const char *kind, *name, *address;
    struct topo_device *device;
    int64_t numa;
    double bandwidth;

    if (json_get_string(r, "kind", true, NULL, &kind, err) ||
        json_get_string(r, "name", true, NULL, &name, err) ||
        json_get_string(r, "address", true, NULL, &address, err) ||
        json_get_int(r, "numa", -1, MOST_PUS, NULL, &numa, err) ||
        json_get_number(r, "bandwidth", 0, 1e300, NULL, &bandwidth, err) ||
        json_reader_end(r, err))
        return -1;
    if (strcmp(kind, device_kinds[TOPO_GPU]) && strcmp(kind, device_kinds[TOPO_NIC]))
        return json_error(r, "kind", err, "\"%s\" is not known", kind);
    device = topo_node_add_device(node, strcmp(kind, "gpu") == 0 ? TOPO_GPU : TOPO_NIC, name,
                             address);
    device->numa = (int)numa;
    device->bandwidth = bandwidth;
    return 0;
}

static int get_devices(struct json_reader *r, struct topo_node *node, struct err *err)
{
    const json_t *array;

    if (json_get_array(r, "devices", true, &array, err))
        return -1;
    if (json_array_size(array) > MOST_DEVICES)
        return json_error(r, "devices", err, "there are too many");
    for (size_t i = 0; i < json_array_size(array); i++) {
        struct json_reader device;

        if (json_reader_sub(&device, r, "devices", (int)i, json_array_get(array, i), err) ||
            get_device(&device, node, err))
            return -1;
    }
    return 0;
}

struct topo_node *topo_node_from_json(const char *what, const json_t *json, struct err *err)
{
    struct topo_node *node;
    struct json_reader r = { .file = what };

    if (!json_is_object(json)) {
        err_set(err, "%s: expected an object", what);
        return NULL;
    }
    r.object = json;
    node = topo_node_new();
    if (get_texts(&r, node, err) || get_figures(&r, node, err) || get_usable(&r, node, err) ||
        get_devices(&r, node, err) || json_reader_end(&r, err)) {
        topo_node_free(node);
        return NULL;
    }
    return node;
}
