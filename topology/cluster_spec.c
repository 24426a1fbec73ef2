/* SPDX-License-Identifier: MIT */
#include "topology/cluster_spec.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "topology/cluster.h"

#define MAX_DEVICES 1048576
#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number

enum key {
    KEY_BANDWIDTH, KEY_INSIDE, KEY_ACROSS, KEY_LATENCY, KEY_INSIDE_LATENCY, KEY_MEMORY,
    KEY_FLOPS, KEY_FLOPS_TF32, KEY_FLOPS_BF16, KEY_FLOPS_FP16, KEY_MEMORY_BANDWIDTH, N_KEYS
};

static const char *const key_names[N_KEYS] = {
    "bandwidth", "inside", "across", "latency", "inside-latency", "memory", "flops",
    "flops-tf32", "flops-bf16", "flops-fp16", "memory-bandwidth",
};

/* Of a device. */
#define SPEEDS (1u << KEY_FLOPS | 1u << KEY_FLOPS_TF32 | 1u << KEY_FLOPS_BF16 | 1u << KEY_FLOPS_FP16 | \
                1u << KEY_MEMORY_BANDWIDTH)

/* Which keys each form takes and needs. */
static const struct form {
    const char *prefix, *example;
    unsigned takes, needs;
} forms[] = {
    { "flat:", "flat:16,bandwidth=1e9,memory=16e9",
               1u << KEY_BANDWIDTH | 1u << KEY_LATENCY | 1u << KEY_MEMORY | SPEEDS,
               1u << KEY_BANDWIDTH },
    { "tree:", "tree:4x8,inside=150e9,across=12.5e9,memory=32e9",
               1u << KEY_INSIDE | 1u << KEY_ACROSS | 1u << KEY_LATENCY |
               1u << KEY_INSIDE_LATENCY | 1u << KEY_MEMORY | SPEEDS,
               1u << KEY_INSIDE | 1u << KEY_ACROSS },
};

struct settings {
    double value[N_KEYS];
    unsigned given;
};

static const struct form *form_of(const char *text)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (strncmp(text, forms[i].prefix, strlen(forms[i].prefix)) == 0)
            return &forms[i];
    return NULL;
}

bool cluster_is_spec(const char *text)
{
    return form_of(text) != NULL;
}

static int usage(const char *spec, struct err *err, const char *what, const char *word)
{
    return err_set_code(err, EXIT_USAGE, "cluster \"%s\": %s \"%s\"", spec, what, word);
}

/* "", "K" … "T" (powers of 1024), "KB" … "TB" (powers of 1000); 0: none of these. */
static double suffix_factor(const char *suffix)
{
    static const char letters[] = "KMGT";
    const char *letter;

    if (!*suffix)
        return 1;
    letter = strchr(letters, toupper((unsigned char)*suffix));
    if (!letter)
        return 0;
    if (!suffix[1])
        return pow(1024, (double)(letter - letters + 1));
    return strcmp(suffix + 1, "B") == 0 ? pow(1000, (double)(letter - letters + 1)) : 0;
}

static int parse_value(const char *text, enum key key, double *value)
{
    bool time = key == KEY_LATENCY || key == KEY_INSIDE_LATENCY;
    double number, factor;
    char *end;

    /* strtod() knows blanks, signs, hexadecimal and "inf": a spec does not. */
    if (!isdigit((unsigned char)*text) || strpbrk(text, "xXnN"))
        return -1;
    errno = 0;
    number = strtod(text, &end);
    factor = time ? (double)(*end == '\0') : suffix_factor(end);
    number *= factor;
    if (factor == 0 || errno || !isfinite(number) || (number <= 0 && !time))
        return -1;
    *value = number;
    return 0;
}

static int parse_setting(const char *spec, const struct form *form, char *word,
                         struct settings *settings, struct err *err)
{
    char *equals = strchr(word, '=');
    int key;

    if (!equals)
        return usage(spec, err, "expected KEY=VALUE, got", word);
    *equals = '\0';
    for (key = 0; key < N_KEYS; key++)
        if (strcmp(word, key_names[key]) == 0)
            break;
    if (key == N_KEYS || !(form->takes & 1u << key))
        return usage(spec, err, "unknown key", word);
    if (settings->given & 1u << key)
        return usage(spec, err, "given twice:", word);
    if (parse_value(equals + 1, (enum key)key, &settings->value[key])) {
        *equals = '=';
        return usage(spec, err, "not a positive number (or a size such as 16G):", word);
    }
    settings->given |= 1u << key;
    return 0;
}

static int parse_settings(const char *spec, const struct form *form, char *rest,
                          struct settings *settings, struct err *err)
{
    *settings = (struct settings){ .value[KEY_MEMORY] = INFINITY };
    while (rest) {
        char *word = strsep(&rest, ",");

        if (parse_setting(spec, form, word, settings, err))
            return -1;
    }
    for (int key = 0; key < N_KEYS; key++)
        if (form->needs & ~settings->given & 1u << key)
            return err_set_code(err, EXIT_USAGE, "cluster \"%s\": missing key \"%s\", as in %s",
                                spec, key_names[key], form->example);
    return 0;
}

/* A count without sign or blanks; 0 on error. 'end' is the first character after it. */
static long parse_count(const char *text, char **end)
{
    long count;

    *end = (char *)text;
    if (!isdigit((unsigned char)*text))
        return 0;
    errno = 0;
    count = strtol(text, end, 10);
    return errno || count > MAX_DEVICES ? 0 : count;
}

static void add_device(struct cluster *cluster, const char *id, int parent, double bandwidth,
                       const struct settings *settings)
{
    int index = cluster_add_device(cluster, id, "", parent, bandwidth);
    struct cluster_device *device = &cluster->devices[index];

    device->memory = settings->value[KEY_MEMORY];
    device->flops = settings->value[KEY_FLOPS];
    for (int f = FACTORS_TF32; f < FACTORS; f++)
        device->product_flops[f] = settings->value[KEY_FLOPS_TF32 + f - FACTORS_TF32];
    device->memory_bandwidth = settings->value[KEY_MEMORY_BANDWIDTH];
}

static void build_flat(struct cluster *cluster, long n, const struct settings *settings)
{
    cluster->places[0].latency = settings->value[KEY_LATENCY];
    for (long i = 0; i < n; i++) {
        char id[24];

        snprintf(id, sizeof(id), "%ld", i);
        add_device(cluster, id, 0, settings->value[KEY_BANDWIDTH], settings);
    }
}

static void build_tree(struct cluster *cluster, long nodes, long devices,
                       const struct settings *settings)
{
    cluster->places[0].latency = settings->value[KEY_LATENCY];
    for (long i = 0; i < nodes; i++) {
        char name[24], id[64];
        int node;

        snprintf(name, sizeof(name), "n%ld", i);
        node = cluster_add_place(cluster, CLUSTER_NODE, name, 0, settings->value[KEY_ACROSS]);
        cluster->places[node].latency = settings->value[KEY_INSIDE_LATENCY];
        for (long j = 0; j < devices; j++) {
            snprintf(id, sizeof(id), "%s/gpu%ld", name, j);
            add_device(cluster, id, node, settings->value[KEY_INSIDE], settings);
        }
    }
}

struct cluster *cluster_from_spec(const char *spec, struct err *err)
{
    const struct form *form = form_of(spec);
    char *copy = mem_strdup(spec), *size = copy + strlen(form->prefix), *end;
    bool flat = form == &forms[0];
    struct cluster *cluster = NULL;
    struct settings settings;
    long n, m = 1;

    n = parse_count(size, &end);
    if (n && !flat)
        m = *end == 'x' ? parse_count(end + 1, &end) : 0;
    if (n < 1 || m < 1 || n > MAX_DEVICES / m || (*end && *end != ',')) {
        size[strcspn(size, ",")] = '\0';
        usage(spec, err, flat ? "expected a number of devices from 1 to " TEXT(MAX_DEVICES) ", got"
                              : "expected NODESxDEVICES, from 1x1 to " TEXT(MAX_DEVICES)
                                " devices in all, got", size);
        goto out;
    }
    if (parse_settings(spec, form, *end ? end + 1 : NULL, &settings, err))
        goto out;
    cluster = cluster_new(spec);
    if (flat)
        build_flat(cluster, n, &settings);
    else
        build_tree(cluster, n, m, &settings);
out:
    free(copy);
    return cluster;
}
