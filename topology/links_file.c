/* SPDX-License-Identifier: MIT */
#include "topology/links.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "topology/cluster.h"
#include "topology/report.h"

#define MOST 1e300

static void write_class(FILE *out, const struct links_class *class)
{
    char small[24], latency[24], eager[24] = "-", rate[24], slowest[24];
    char *name = class->way ? mem_printf("%s, %s", class->name, class->way)
                            : mem_strdup(class->name);

    if (class->curve.eager_bytes > 0)
        report_bytes(class->curve.eager_bytes, eager);
    fprintf(out, "  %-26s %5d %9s %9s %9s %11s %5.0f %% %5.0f %%  %s, %s\n", name,
            class->pairs, report_time(class->seconds[0], small), eager,
            report_time(class->curve.line.latency, latency),
            report_rate(class->curve.line.bandwidth, rate), 100 * class->error,
            100 * class->noise, class->slowest,
            report_rate(class->slowest_bandwidth, slowest));
    free(name);
}

static void write_together(FILE *out, const struct links_class *class)
{
    char rate[24], one[24];

    if (class->together > 0)
        fprintf(out, "  %s: %d transfers at once have %s together, one alone %s\n", class->name,
                class->together, report_rate(class->together_bandwidth, rate),
                report_rate(class->curve.line.bandwidth, one));
}

char *links_text(const struct links *links, const char *what)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return mem_strdup("");
    fprintf(out, "%s, measured%s\n  %-26s %5s %9s %9s %9s %11s %7s %7s  %s\n", what,
            links->full ? "" : " (quick)", "", "pairs", "8 bytes", "eager to", "latency",
            "bandwidth", "error", "noise", "slowest pair");
    for (int i = 0; i < links->n_classes; i++)
        write_class(out, &links->classes[i]);
    for (int i = 0; i < links->n_classes; i++)
        write_together(out, &links->classes[i]);
    for (int i = 0; i < links->n_slow; i++) {
        char *evidence = links_evidence(&links->slow[i]);

        fprintf(out, "  slow: %s: %s (%s)\n", links->slow[i].what, evidence,
                links->slow[i].class);
        free(evidence);
    }
    fclose(out);
    return text;
}

char *links_evidence(const struct links_slow *slow)
{
    char value[24], usual[24];

    if (slow->is_latency)
        return mem_printf("8 bytes take %s, usual are %s", report_time(slow->value, value),
                          report_time(slow->usual, usual));
    return mem_printf("%s of %s", report_rate(slow->value, value),
                      report_rate(slow->usual, usual));
}

static json_t *class_json(const struct links *links, const struct links_class *class)
{
    const struct cluster_eager eager = { class->curve.eager_bytes, class->curve.eager_latency,
                                         class->curve.copy_bandwidth };
    json_t *seconds = json_array(), *object;

    for (int s = 0; s < links->n_sizes; s++)
        json_array_append_new(seconds, json_real(class->seconds[s]));
    object = json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:o, s:s, s:f}", "class", class->name,
                       "pairs", class->pairs, "latency", class->curve.line.latency,
                       "bandwidth", class->curve.line.bandwidth, "error", class->error,
                       "noise", class->noise, "seconds", seconds, "slowest", class->slowest, "slowest_bandwidth",
                       class->slowest_bandwidth);
    if (class->way)
        json_object_set_new(object, "way", json_string(class->way));
    if (class->curve.eager_bytes > 0)
        json_object_set_new(object, "eager", cluster_eager_json(&eager));
    if (class->together > 0) {
        json_object_set_new(object, "together", json_integer(class->together));
        json_object_set_new(object, "together_bandwidth",
                            json_real(class->together_bandwidth));
    }
    return object;
}

static json_t *slow_json(const struct links_slow *slow)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:f, s:f}", "host", slow->host, "pair", slow->what,
                     "class", slow->class, "figure",
                     slow->is_latency ? "latency" : "bandwidth", "value", slow->value, "usual",
                     slow->usual);
}

json_t *links_to_json(const struct links *links)
{
    json_t *sizes = json_array(), *classes = json_array(), *slow = json_array();

    for (int s = 0; s < links->n_sizes; s++)
        json_array_append_new(sizes, json_integer((json_int_t)links->bytes[s]));
    for (int i = 0; i < links->n_classes; i++)
        json_array_append_new(classes, class_json(links, &links->classes[i]));
    for (int i = 0; i < links->n_slow; i++)
        json_array_append_new(slow, slow_json(&links->slow[i]));
    return json_pack("{s:s, s:o, s:o, s:o}", "measure", links->full ? "full" : "quick",
                     "bytes", sizes, "classes", classes, "slow", slow);
}

static int read_seconds(struct json_reader *r, const struct links *links,
                        struct links_class *class, struct err *err)
{
    const json_t *array;

    if (json_get_array(r, "seconds", true, &array, err))
        return -1;
    if (json_array_size(array) != (size_t)links->n_sizes)
        return json_error(r, "seconds", err, "expected one for each of bytes");
    for (int s = 0; s < links->n_sizes; s++) {
        double seconds = json_number_value(json_array_get(array, (size_t)s));

        if (!(seconds > 0 && seconds < MOST))
            return json_error(r, "seconds", err, "expected positive numbers");
        class->seconds[s] = seconds;
    }
    return 0;
}

static int read_class(struct json_reader *r, struct links *links, struct err *err)
{
    static const int64_t no_transfers = 0;
    static const double none = 0;
    struct links_class *class =
        mem_push((void **)&links->classes, &links->n_classes, sizeof(*class));
    struct cluster_eager eager;
    const char *name, *way, *slowest;
    int64_t pairs, together;

    if (json_get_string(r, "class", true, NULL, &name, err) ||
        json_get_string(r, "way", false, "", &way, err) ||
        json_get_string(r, "slowest", true, NULL, &slowest, err))
        return -1;
    class->name = mem_strdup(name);
    class->way = *way ? mem_strdup(way) : NULL;
    class->slowest = mem_strdup(slowest);
    if (json_get_int(r, "pairs", 1, INT32_MAX, NULL, &pairs, err) ||
        json_get_number(r, "latency", 0, MOST, NULL, &class->curve.line.latency, err) ||
        json_get_number(r, "bandwidth", 0, MOST, NULL, &class->curve.line.bandwidth, err) ||
        cluster_eager_read(r, &eager, err) ||
        json_get_number(r, "error", 0, MOST, NULL, &class->error, err) ||
        json_get_number(r, "noise", 0, MOST, NULL, &class->noise, err) ||
        json_get_number(r, "slowest_bandwidth", 0, MOST, NULL, &class->slowest_bandwidth,
                        err) ||
        json_get_int(r, "together", 0, INT32_MAX, &no_transfers, &together, err) ||
        json_get_number(r, "together_bandwidth", 0, MOST, &none, &class->together_bandwidth,
                        err) ||
        read_seconds(r, links, class, err))
        return -1;
    class->curve.eager_bytes = eager.bytes;
    class->curve.eager_latency = eager.latency;
    class->curve.copy_bandwidth = eager.copy_bandwidth;
    class->pairs = (int)pairs;
    class->together = (int)together;
    return json_reader_end(r, err);
}

static int read_slow(struct json_reader *r, struct links *links, struct err *err)
{
    struct links_slow *slow = mem_push((void **)&links->slow, &links->n_slow, sizeof(*slow));
    const char *host, *what, *class, *figure;

    if (json_get_string(r, "host", true, NULL, &host, err) ||
        json_get_string(r, "pair", true, NULL, &what, err) ||
        json_get_string(r, "class", true, NULL, &class, err) ||
        json_get_string(r, "figure", true, NULL, &figure, err) ||
        json_get_number(r, "value", 0, MOST, NULL, &slow->value, err) ||
        json_get_number(r, "usual", 0, MOST, NULL, &slow->usual, err))
        return -1;
    slow->host = mem_strdup(host);
    slow->what = mem_strdup(what);
    slow->class = mem_strdup(class);
    slow->is_latency = strcmp(figure, "latency") == 0;
    if (!slow->is_latency && strcmp(figure, "bandwidth") != 0)
        return json_error(r, "figure", err, "\"%s\" is not known", figure);
    return json_reader_end(r, err);
}

static int read_list(struct json_reader *top, const char *key, struct links *links,
                     int (*read)(struct json_reader *, struct links *, struct err *),
                     struct err *err)
{
    const json_t *array;

    if (json_get_array(top, key, true, &array, err))
        return -1;
    for (size_t i = 0; i < json_array_size(array); i++) {
        struct json_reader r;

        if (json_reader_sub(&r, top, key, (int)i, json_array_get(array, i), err) ||
            read(&r, links, err))
            return -1;
    }
    return 0;
}

static int read_sizes(struct json_reader *r, struct links *links, struct err *err)
{
    const json_t *array;

    if (json_get_array(r, "bytes", true, &array, err))
        return -1;
    if (json_array_size(array) < 1 || json_array_size(array) > LINKS_SIZES)
        return json_error(r, "bytes", err, "expected 1 to %d sizes", LINKS_SIZES);
    for (size_t i = 0; i < json_array_size(array); i++) {
        json_int_t bytes = json_integer_value(json_array_get(array, i));

        if (bytes <= 0)
            return json_error(r, "bytes", err, "expected positive integers");
        links->bytes[links->n_sizes++] = (size_t)bytes;
    }
    return 0;
}

struct links *links_from_json(const char *path, const json_t *json, struct err *err)
{
    const struct json_reader file = { .file = path };
    struct links *links = mem_new(1, sizeof(*links));
    struct json_reader r;
    const char *measure;

    if (json_reader_sub(&r, &file, "measured", -1, json, err) == 0 &&
        json_get_string(&r, "measure", true, NULL, &measure, err) == 0 &&
        read_sizes(&r, links, err) == 0 &&
        read_list(&r, "classes", links, read_class, err) == 0 &&
        read_list(&r, "slow", links, read_slow, err) == 0 && json_reader_end(&r, err) == 0) {
        links->full = strcmp(measure, "full") == 0;
        return links;
    }
    links_free(links);
    return NULL;
}
