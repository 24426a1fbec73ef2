/* SPDX-License-Identifier: MIT */
/* tasuki import: a PyTorch model becomes an ONNX file, a data set a safetensors file. A Python
 * program that is installed with Tasuki does it, in this process's place.
 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "base/option.h"
#include "commands.h"
#include "graph/model.h"

#define HELPER "tasuki_import.py"
#define MAX_DIM (1 << 30)

struct words {
    int n;
    char **list;
};

static void add(struct words *words, const char *word)
{
    *(char **)mem_push((void **)&words->list, &words->n, sizeof(char *)) = mem_strdup(word);
}

static void add_pair(struct words *words, const char *option, const char *value)
{
    char *word;

    if (!value)
        return;
    word = mem_printf("%s=%s", option, value);
    add(words, word);
    free(word);
}

static void clear(struct words *words)
{
    for (int i = 0; i < words->n; i++)
        free(words->list[i]);
    free(words->list);
}

/* In a build tree beside the program, else where it was installed; malloc'ed. */
static char *find_helper(struct err *err)
{
    char *path = module_file("etc/import/" HELPER, PKGDATADIR "/import/" HELPER);

    if (access(path, R_OK) == 0)
        return path;
    err_set(err, "%s: %s", path, strerror(errno));
    free(path);
    return NULL;
}

/* Inputs ------------------------------------------------------------------------------- */

static int bad_input(const char *spec, const char *why, struct err *err)
{
    return err_set_code(err, EXIT_USAGE, "--input \"%.200s\": %s; expected NAME:BATCHxDIM..., "
                        "such as x:64x512 or ids:8x128:int64", spec, why);
}

static int check_dims(const char *spec, const char *at, const char *end, struct err *err)
{
    int rank = 0;

    for (; at <= end; at++) {
        char *next;
        long dim = *at >= '0' && *at <= '9' ? strtol(at, &next, 10) : 0;

        if (dim < 1 || dim > MAX_DIM)
            return bad_input(spec, "a dimension is no number from 1 to 2^30", err);
        if (next != end && *next != 'x')
            return bad_input(spec, "dimensions are separated by 'x'", err);
        if (++rank > GRAPH_MAX_RANK)
            return bad_input(spec, "more than 8 dimensions", err);
        at = next;
    }
    return 0;
}

static int check_input(const char *spec, struct err *err)
{
    static const char *const types[] = { "float32", "float64", "int64", "int32", "uint8",
                                         "bool" };
    const char *colon = strchr(spec, ':'), *type = colon ? strchr(colon + 1, ':') : NULL;
    const char *end = type ? type : spec + strlen(spec);

    if (!colon || colon == spec)
        return bad_input(spec, "no name before a colon", err);
    if (check_dims(spec, colon + 1, end, err))
        return -1;
    for (size_t i = 0; type && i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(type + 1, types[i]) == 0)
            return 0;
    return type ? bad_input(spec, "the type is none of float32, float64, int64, int32, uint8 "
                            "and bool", err) : 0;
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, ":");

    return n == strcspn(b, ":") && strncmp(a, b, n) == 0;
}

static int add_inputs(const struct options *o, struct words *words, struct err *err)
{
    const char *const *specs;
    int n = option_strings(o, "input", &specs);

    if (!n)
        return err_set_code(err, EXIT_USAGE, "import: --input NAME:BATCHxDIM... is missing: "
                            "what the network is to be called with");
    for (int i = 0; i < n; i++) {
        if (check_input(specs[i], err))
            return -1;
        for (int k = 0; k < i; k++)
            if (same_name(specs[i], specs[k]))
                return bad_input(specs[i], "this name is taken", err);
        add_pair(words, "--input", specs[i]);
    }
    return 0;
}

/* What is asked of the helper ---------------------------------------------------------- */

/* Options of a model make no sense for data, and the other way round. */
static int refuse(const struct options *o, const char *const *names, const char *what,
                  struct err *err)
{
    for (; *names; names++)
        if (option_origin(o, *names) == OPTION_COMMAND_LINE)
            return err_set_code(err, EXIT_USAGE, "import: --%s is for %s", *names, what);
    return 0;
}

static int model_words(const struct options *o, struct words *words, struct err *err)
{
    static const char *const others[] = { "names", "model", "samples", NULL };
    const char *exporter;
    int64_t opset;

    if (refuse(o, others, "data (-o FILE.safetensors)", err) || add_inputs(o, words, err) ||
        option_choice(o, "exporter", &exporter, err) < 0 ||
        option_int(o, "opset", 13, 23, 0, &opset, err) < 0)
        return -1;
    add_pair(words, "--exporter", exporter);
    if (opset) {
        char text[32];

        snprintf(text, sizeof(text), "%" PRId64, opset);
        add_pair(words, "--opset", text);
    }
    if (!option_flag(o, "weights", true))
        add(words, "--no-weights");
    return 0;
}

/* The inputs of a model in their order, and the label. */
static char *names_of_model(const char *path, struct err *err)
{
    struct model_options options = { .batch = 1, .real = DTYPE_F32, .no_loss = true };
    struct model *model = model_open(path, err);
    struct graph *graph = model ? model_build(model, &options, err) : NULL;
    char *names = NULL;

    for (int i = 0; graph && i < graph->n_inputs; i++) {
        char *longer = mem_printf("%s%s%s", names ? names : "", names ? "," : "",
                                  graph->values[graph->inputs[i]].name);

        free(names);
        names = longer;
    }
    if (names) {
        char *longer = mem_printf("%s,label", names);

        free(names);
        names = longer;
    }
    graph_free(graph);
    model_close(model);
    return names;
}

static int data_words(const struct options *o, struct words *words, struct err *err)
{
    static const char *const others[] = { "input", "exporter", "opset", "weights", NULL };
    const char *names = option_string(o, "names", NULL), *model = option_string(o, "model", NULL);
    char *made = NULL, text[32];
    int64_t samples;

    if (refuse(o, others, "a model (-o FILE.onnx)", err) ||
        option_int(o, "samples", 1, INT64_MAX / 2, 0, &samples, err) < 0)
        return -1;
    if (names && model)
        return err_set_code(err, EXIT_USAGE, "import: --names and --model say the same thing");
    if (model && !(made = names_of_model(model, err)))
        return -1;
    add_pair(words, "--names", made ? made : names);
    free(made);
    if (samples) {
        snprintf(text, sizeof(text), "%" PRId64, samples);
        add_pair(words, "--samples", text);
    }
    return 0;
}

static int check_source(const char *source, struct err *err)
{
    const char *colon = strrchr(source, ':');

    if (!colon || colon == source || !colon[1])
        return err_set_code(err, EXIT_USAGE, "import: \"%.200s\": expected FILE.py:NAME, NAME "
                            "being a function, a class or an object of that file", source);
    return 0;
}

static int make_words(const struct options *o, struct words *words, struct err *err)
{
    const char *output = option_string(o, "output", NULL);
    bool model = output && file_ends_in(output, ".onnx");

    if (options_operands(o) != 1)
        return err_set_code(err, EXIT_USAGE, "import: expected FILE.py:NAME");
    if (check_source(options_operand(o, 0), err))
        return -1;
    if (!model && !(output && file_ends_in(output, ".safetensors")))
        return err_set_code(err, EXIT_USAGE, "import: -o FILE.onnx for a model, or -o "
                            "FILE.safetensors for data, is missing");
    add(words, model ? "model" : "data");
    add(words, options_operand(o, 0));
    add(words, output);
    if (option_flag(o, "quiet", false))
        add(words, "--quiet");
    return model ? model_words(o, words, err) : data_words(o, words, err);
}

/* Only an error comes back. */
static int become(const char *python, struct words *words, struct err *err)
{
    *(char **)mem_push((void **)&words->list, &words->n, sizeof(char *)) = NULL;
    fflush(stdout);
    log_debug("%s %s", python, words->list[1]);
    execvp(python, words->list);
    return err_set(err, "%s: %s: import needs Python 3 with PyTorch; name one by --python or "
                   "TASUKI_PYTHON", python, strerror(errno));
}

int cmd_import(int argc, char **argv, struct err *err)
{
    struct options *options = options_parse(COMMAND_IMPORT, argc, argv, 1, err);
    const char *python = options ? option_string(options, "python", "python3") : NULL;
    char *helper = options ? find_helper(err) : NULL;
    struct words words = { 0 };

    if (helper) {
        add(&words, python);
        add(&words, helper);
        if (make_words(options, &words, err) == 0)
            become(python, &words, err);
    }
    clear(&words);
    free(helper);
    options_free(options);
    return (int)err->code;
}
