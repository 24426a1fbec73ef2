/* SPDX-License-Identifier: MIT */
#include "topology/record.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "topology/node.h"

#define MOST_HOSTS (1 << 20)

struct kind {
    json_t *node;           /* without what is each host's own */
    int n_hosts, first;
};

struct host {
    char *name;
    int kind;
    json_t *own;            /* in the form of a node */
};

struct topo_record {
    int n_kinds, n_hosts;
    struct kind *kinds;
    struct host *hosts;
    json_t *kind_of;        /* the text of a kind's node → its index: jansson hashes it */
    json_t *host_of;        /* name → index */
};

/* The bits that say that something is wrong stay with the kind: such a node is another kind. */
static bool is_harmful(const char *key, const json_t *value)
{
    return strcmp(key, "throttle") == 0 && json_integer_value(value) & TOPO_THROTTLE_HARMFUL;
}

/* Move the values of 'keys' out of 'object'. */
static json_t *take(json_t *object, const char *const *keys)
{
    json_t *own = json_object();

    for (; *keys; keys++) {
        json_t *value = json_object_get(object, *keys);

        if (!value || is_harmful(*keys, value))
            continue;
        json_object_set(own, *keys, value);
        json_object_del(object, *keys);
    }
    return own;
}

static json_t *take_list(const json_t *object, const char *list, const char *const *keys)
{
    json_t *own = json_array(), *element;
    size_t i;

    json_array_foreach(json_object_get(object, list), i, element)
        json_array_append_new(own, take(element, keys));
    return own;
}

/* What is each host's own has the form of a node that has only that. */
static json_t *take_own(json_t *node)
{
    static const char *const of_node[] = { "machine", "source", "memory", "usable", "visible",
                                           "partitions", "isolated", "switches", "notes",
                                           "container", "pmix_client", "pmix_server", NULL };
    static const char *const of_gpu[] = { "uuid", "seen", "clock", "throttle", "ecc_corrected",
                                          NULL };
    static const char *const of_mig[] = { "uuid", NULL };
    static const char *const of_numa[] = { "memory", NULL };
    static const char *const of_nic[] = { "guid", "lid", NULL };
    json_t *own = take(node, of_node), *gpu;
    json_t *gpus = take_list(node, "gpus", of_gpu);
    size_t i;

    json_array_foreach(json_object_get(node, "gpus"), i, gpu) {
        if (json_object_get(gpu, "migs"))
            json_object_set_new(json_array_get(gpus, i), "migs",
                                take_list(gpu, "migs", of_mig));
    }
    json_object_set_new(own, "gpus", gpus);
    json_object_set_new(own, "numas", take_list(node, "numas", of_numa));
    json_object_set_new(own, "nics", take_list(node, "nics", of_nic));
    return own;
}

/* And back: objects by key, arrays by place. What does not fit is refused when it is read. */
static void give(json_t *to, json_t *own)
{
    const char *key;
    json_t *value;
    size_t i;

    if (json_is_object(own))
        json_object_foreach(own, key, value) {
            json_t *there = json_object_get(to, key);

            if (there && json_typeof(there) == json_typeof(value) && json_is_array(value))
                give(there, value);
            else
                json_object_set(to, key, value);
        }
    else
        json_array_foreach(own, i, value) {
            json_t *there = json_array_get(to, i);

            if (json_is_object(there) && json_is_object(value))
                give(there, value);
            else
                json_array_append(to, value);
        }
}

struct topo_record *topo_record_new(void)
{
    struct topo_record *record = mem_new(1, sizeof(*record));

    record->kind_of = json_object();
    record->host_of = json_object();
    return record;
}

void topo_record_free(struct topo_record *record)
{
    if (!record)
        return;
    for (int i = 0; i < record->n_kinds; i++)
        json_decref(record->kinds[i].node);
    for (int i = 0; i < record->n_hosts; i++) {
        free(record->hosts[i].name);
        json_decref(record->hosts[i].own);
    }
    free(record->kinds);
    free(record->hosts);
    json_decref(record->kind_of);
    json_decref(record->host_of);
    free(record);
}

static int known_kind(const struct topo_record *record, const char *text)
{
    const json_t *known = json_object_get(record->kind_of, text);

    return known ? (int)json_integer_value(known) : -1;
}

/* Takes over 'node'. */
static int add_kind(struct topo_record *record, const char *text, json_t *node)
{
    if (text)
        json_object_set_new(record->kind_of, text, json_integer(record->n_kinds));
    *(struct kind *)mem_push((void **)&record->kinds, &record->n_kinds, sizeof(struct kind)) =
        (struct kind){ .node = node, .first = record->n_hosts };
    return record->n_kinds - 1;
}

/* Takes over 'own'. */
static void add_host(struct topo_record *record, const char *name, int kind, json_t *own)
{
    json_object_set_new(record->host_of, name, json_integer(record->n_hosts));
    record->kinds[kind].n_hosts++;
    *(struct host *)mem_push((void **)&record->hosts, &record->n_hosts, sizeof(struct host)) =
        (struct host){ .name = mem_strdup(name), .kind = kind, .own = own };
}

/* {"3": …} of those that the driver shows, where it hides others, or where nobody else knows them:
 * other ranks may see others then. NULL: all are known to all.
 */
static json_t *shown_gpus(const struct topo_node *node, const json_t *object)
{
    json_t *shown = json_object();
    bool some = false;

    for (int i = 0; i < node->n_gpus; i++) {
        char index[16];

        snprintf(index, sizeof(index), "%d", i);
        some |= !node->gpus[i].seen || topo_node_find_pci(node, node->gpus[i].address) < 0;
        if (node->gpus[i].seen)
            json_object_set_new(shown, index,
                                json_deep_copy(json_array_get(json_object_get(object, "gpus"),
                                                              (size_t)i)));
    }
    if (json_object_size(shown) > 0 && some)
        return shown;
    json_decref(shown);
    return NULL;
}

char *topo_record_pack(const struct topo_node *node, bool whole, size_t *size, struct err *err)
{
    json_t *kind = topo_node_to_json(node), *head;
    json_t *shown = whole ? NULL : shown_gpus(node, kind);
    char *first, *second, *text = NULL;

    head = json_pack("{s:s, s:o, s:o*}", "host", node->host, "own", take_own(kind), "gpus",
                     shown);
    json_object_del(kind, "host");
    first = head ? json_dumps(head, JSON_COMPACT) : NULL;
    second = whole ? json_dumps(kind, JSON_COMPACT) : mem_strdup("");
    if (first && second) {
        text = mem_printf("%s\n%s", first, second);
        *size = strlen(text);
    } else {
        err_set(err, "%s: a name on this node is not in UTF-8", node->host);
    }
    free(first);
    free(second);
    json_decref(head);
    json_decref(kind);
    return text;
}

/* The first line: the host's name and its own. */
static json_t *parse_head(const char *text, size_t size, const char **kind, struct err *err)
{
    const char *end = memchr(text, '\n', size);
    json_t *head = end ? json_loadb(text, (size_t)(end - text), JSON_REJECT_DUPLICATES, NULL)
                       : NULL;

    if (head && json_is_string(json_object_get(head, "host")) &&
        json_is_object(json_object_get(head, "own"))) {
        *kind = end + 1;
        return head;
    }
    json_decref(head);
    err_set(err, "what a node says of itself is not a description of one");
    return NULL;
}

static json_t *parse_kind(const char *host, const char *text, struct err *err)
{
    json_t *kind = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

    if (json_is_object(kind))
        return kind;
    json_decref(kind);
    err_set(err, "%s: what it says of itself is not JSON", host);
    return NULL;
}

/* 'kind' is changed. */
static struct topo_node *join(const char *host, json_t *kind, json_t *own, struct err *err)
{
    json_object_set_new(kind, "host", json_string(host));
    give(kind, own);
    return topo_node_from_json(host, kind, err);
}

json_t *topo_record_own(const char *text, size_t size, struct err *err)
{
    const char *rest;

    return parse_head(text, size, &rest, err);
}

struct topo_node *topo_record_unpack(const char *what, const char *text, size_t size,
                                     const char *kind, size_t kind_size, struct err *err)
{
    const char *rest, *line;
    json_t *head = parse_head(text, size, &rest, err), *object;
    struct topo_node *node = NULL;
    char *copy;

    if (!head) {
        err_prefix(err, "%s", what);
        return NULL;
    }
    line = kind ? memchr(kind, '\n', kind_size) : NULL;
    if (rest == text + size && line) {
        rest = line + 1;
        size = kind_size;
        text = kind;
    }
    copy = mem_printf("%.*s", (int)(size - (size_t)(rest - text)), rest);
    object = parse_kind(what, copy, err);
    if (object)
        node = join(json_string_value(json_object_get(head, "host")), object,
                    json_object_get(head, "own"), err);
    json_decref(head);
    json_decref(object);
    free(copy);
    return node;
}

int topo_record_add_packed(struct topo_record *record, const char *text, size_t size,
                           struct err *err)
{
    const char *rest, *name;
    json_t *head = parse_head(text, size, &rest, err), *node;
    char *copy = NULL;
    int kind, status = -1;

    if (!head)
        return -1;
    name = json_string_value(json_object_get(head, "host"));
    if (json_object_get(record->host_of, name)) {
        status = 0;
        goto out;
    }
    copy = mem_printf("%.*s", (int)(size - (size_t)(rest - text)), rest);
    kind = known_kind(record, copy);
    if (kind < 0) {
        node = parse_kind(name, copy, err);
        if (!node)
            goto out;
        kind = add_kind(record, copy, node);
    }
    add_host(record, name, kind, json_incref(json_object_get(head, "own")));
    status = 0;
out:
    free(copy);
    json_decref(head);
    return status;
}

int topo_record_add_node(struct topo_record *record, const struct topo_node *node,
                         struct err *err)
{
    size_t size = 0;
    char *text = topo_record_pack(node, true, &size, err);
    int status = text ? topo_record_add_packed(record, text, size, err) : -1;

    free(text);
    return status;
}

int topo_record_hosts(const struct topo_record *record)
{
    return record->n_hosts;
}

int topo_record_kinds(const struct topo_record *record)
{
    return record->n_kinds;
}

const char *topo_record_host(const struct topo_record *record, int host)
{
    return record->hosts[host].name;
}

int topo_record_kind(const struct topo_record *record, int host)
{
    return record->hosts[host].kind;
}

int topo_record_find(const struct topo_record *record, const char *host)
{
    const json_t *index = json_object_get(record->host_of, host);

    return index ? (int)json_integer_value(index) : -1;
}

int topo_record_count(const struct topo_record *record, int kind, int *first)
{
    if (first)
        *first = record->kinds[kind].first;
    return record->kinds[kind].n_hosts;
}

const char *topo_record_switches(const struct topo_record *record, int host)
{
    const char *path = json_string_value(json_object_get(record->hosts[host].own, "switches"));

    return path ? path : "";
}

double topo_record_memory(const struct topo_record *record, int host)
{
    const struct host *h = &record->hosts[host];
    const json_t *own = json_object_get(h->own, "memory");

    return json_number_value(own ? own
                                 : json_object_get(record->kinds[h->kind].node, "memory"));
}

/* Remove what says nothing; the clock of a GPU that is held down is evidence. */
static void drop_harmless(json_t *own, const json_t *kind)
{
    static const char *const of_node[] = { "machine", "source", "memory", "switches",
                                           "partitions", NULL };
    static const char *const of_gpu[] = { "uuid", "throttle", "ecc_corrected", "clock", NULL };
    static const char *const of_held[] = { "uuid", "ecc_corrected", NULL };
    static const char *const of_mig[] = { "uuid", NULL };
    static const char *const of_numa[] = { "memory", NULL };
    static const char *const of_nic[] = { "guid", "lid", NULL };
    const json_t *gpus = json_object_get(kind, "gpus");
    json_t *gpu;
    size_t i;

    json_array_foreach(json_object_get(own, "gpus"), i, gpu) {
        const json_t *throttle = json_object_get(json_array_get(gpus, i), "throttle");

        json_decref(take(gpu, is_harmful("throttle", throttle) ? of_held : of_gpu));
        json_decref(take_list(gpu, "migs", of_mig));
    }
    json_decref(take(own, of_node));
    json_decref(take_list(own, "numas", of_numa));
    json_decref(take_list(own, "nics", of_nic));
}

char *topo_record_likeness(const struct topo_record *record, int host)
{
    const struct host *h = &record->hosts[host];
    json_t *own = json_deep_copy(h->own);
    char *left, *text;

    drop_harmless(own, record->kinds[h->kind].node);
    left = json_dumps(own, JSON_COMPACT);
    text = mem_printf("%d %s", h->kind, left ? left : "");
    free(left);
    json_decref(own);
    return text;
}

struct topo_node *topo_record_node(const struct topo_record *record, int host, struct err *err)
{
    const struct host *h = &record->hosts[host];
    json_t *kind = json_deep_copy(record->kinds[h->kind].node);
    struct topo_node *node;

    if (!kind) {
        err_set(err, "%s: out of memory", h->name);
        return NULL;
    }
    node = join(h->name, kind, h->own, err);
    json_decref(kind);
    return node;
}

json_t *topo_record_to_json(const struct topo_record *record)
{
    json_t *kinds = json_array();

    for (int i = 0; i < record->n_kinds; i++)
        json_array_append_new(kinds, json_pack("{s:[], s:[], s:O}", "hosts", "own", "node",
                                               record->kinds[i].node));
    for (int i = 0; i < record->n_hosts; i++) {
        const struct host *h = &record->hosts[i];
        json_t *kind = json_array_get(kinds, (size_t)h->kind);

        json_array_append_new(json_object_get(kind, "hosts"), json_string(h->name));
        json_array_append(json_object_get(kind, "own"), h->own);
    }
    return kinds;
}

static int read_host(struct topo_record *record, struct json_reader *r, int kind,
                     const json_t *name, json_t *own, struct err *err)
{
    if (!json_is_string(name) || !json_string_value(name)[0])
        return json_error(r, "hosts", err, "expected names");
    if (json_object_get(record->host_of, json_string_value(name)))
        return json_error(r, "hosts", err, "\"%.64s\" is there twice", json_string_value(name));
    if (!json_is_object(own))
        return json_error(r, "own", err, "expected an object for each host");
    if (record->n_hosts >= MOST_HOSTS)
        return json_error(r, "hosts", err, "more than %d", MOST_HOSTS);
    add_host(record, json_string_value(name), kind, json_incref(own));
    return 0;
}

static int read_kind(struct topo_record *record, struct json_reader *r, struct err *err)
{
    const json_t *hosts, *own, *object;
    struct topo_node *node;
    int kind, first;

    if (json_get_array(r, "hosts", true, &hosts, err) ||
        json_get_array(r, "own", true, &own, err) ||
        json_get_object(r, "node", true, &object, err) || json_reader_end(r, err))
        return -1;
    if (json_array_size(hosts) == 0 || json_array_size(own) != json_array_size(hosts))
        return json_error(r, "own", err, "expected one entry for each of the hosts");
    first = record->n_hosts;
    kind = add_kind(record, NULL, json_incref((json_t *)object));
    for (size_t i = 0; i < json_array_size(hosts); i++)
        if (read_host(record, r, kind, json_array_get(hosts, i), json_array_get(own, i), err))
            return -1;
    node = topo_record_node(record, first, err);
    if (!node)
        return json_error(r, "node", err, "%s", err->text);
    topo_node_free(node);
    return 0;
}

struct topo_record *topo_record_from_json(const char *path, const json_t *nodes,
                                          struct err *err)
{
    struct topo_record *record = topo_record_new();
    struct json_reader top = { .file = path };

    for (size_t i = 0; i < json_array_size(nodes); i++) {
        struct json_reader r;

        if (json_reader_sub(&r, &top, "nodes", (int)i, json_array_get(nodes, i), err) ||
            read_kind(record, &r, err)) {
            topo_record_free(record);
            return NULL;
        }
    }
    return record;
}
