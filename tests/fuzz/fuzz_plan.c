/* SPDX-License-Identifier: MIT */
/* Hostile cost and plan files. What is accepted is planned and simulated. Each kind is counted
 * apart.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "fuzz.h"
#include "scheduler/partition.h"
#include "scheduler/simulate.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define CLUSTER "tree:2x2,inside=1e9,across=1e8,memory=1e12"

static const char cost_text[] =
    "{\"schema\":\"tasuki-cost\",\"version\":1,\"device\":\"\",\"precision\":\"float32\","
    "\"optimizer_bytes_per_parameter\":8,\"gradient_bytes_per_parameter\":4,"
    "\"micro_batch\":[1,2,4],\"blocks\":["
    "{\"name\":\"a\",\"forward\":[1,2,3],\"dgrad\":1,\"wgrad\":[1],\"step\":0.1,"
    "\"parameters\":100,\"activations\":[10,20,40],\"kept_for_wgrad\":5,\"workspace\":[7]},"
    "{\"name\":\"b\",\"forward\":1,\"dgrad\":[1,2,4],\"batch_axis\":false,\"variants\":"
    "[{\"recompute\":\"full\",\"tensor\":2,\"group_bytes\":[1,2,3],\"forward\":1},"
    "{\"recompute\":\"selective\",\"dgrad\":[2,3,4],\"activations\":1}]},"
    "{\"name\":\"c\",\"forward\":1,\"dgrad\":1,\"first\":\"n1\",\"last\":\"n2\"}],"
    "\"edges\":[{\"from\":\"a\",\"to\":\"b\",\"value\":\"h\",\"bytes\":[4,8,16]},"
    "{\"from\":\"a\",\"to\":\"c\",\"value\":\"h\",\"bytes\":[4,8,16],\"gradient_bytes\":0},"
    "{\"from\":\"b\",\"to\":\"c\",\"bytes\":9}],"
    "\"inputs\":[{\"name\":\"x\",\"bytes\":4,\"to\":[\"a\",\"c\"]}],"
    "\"shared\":[{\"name\":\"w\",\"bytes\":64,\"blocks\":[\"a\",\"c\"]}]}";

static const char plan_text[] =
    "{\"schema\":\"tasuki-plan\",\"version\":1,\"global_batch\":24,\"micro_batches\":3,"
    "\"micro_batch\":8,\"schedule\":\"1f1b\",\"schedule_options\":{\"chunks\":1,\"memory\":0},"
    "\"pipelines\":1,\"zero\":false,\"batchnorm_samples\":0,\"iteration_seconds\":1,"
    "\"lower_bound_seconds\":0.5,\"model\":{\"path\":\"m.onnx\",\"xxh3\":\"0\"},"
    "\"cluster\":\"c\",\"precision\":\"float32\",\"optimizer\":\"sgd\",\"command\":\"x\","
    "\"shared\":[{\"name\":\"w\",\"owner\":0,\"stages\":[0,1]}],\"stages\":["
    "{\"blocks\":[\"a\",{\"name\":\"b\",\"first\":\"n1\",\"last\":\"n2\"}],\"replicas\":3,"
    "\"devices\":[[\"n0/gpu0\",\"n0/gpu1\",\"n1/gpu0\"]],\"samples\":[2,3,3],"
    "\"recompute\":\"none\",\"tensor\":1,\"forward\":1,\"dgrad\":1,\"wgrad\":1,"
    "\"allreduce\":0,\"memory\":5},"
    "{\"blocks\":[\"c\"],\"replicas\":1,\"devices\":[[\"n1/gpu1\"]]}]}";

/* A device with two stages, which recompute, and its instructions. */
static const char listed_text[] =
    "{\"schema\":\"tasuki-plan\",\"version\":1,\"global_batch\":4,\"micro_batches\":2,"
    "\"micro_batch\":2,\"schedule\":\"zb-v\",\"instructions\":["
    "\"schedule zb-v stages 2 micro-batches 2\",\"stage 0 slots 1\",\"stage 1 slots 1\","
    "\"RECV 0 1 <- 0\",\"F 0 0\",\"SEND 0 0 -> 1\",\"RECV 0 0 <- 1 gradient\",\"F 0 1\","
    "\"B 0 1\",\"SEND 0 1 -> 0 gradient\",\"W 0 1\",\"BW 0 0\",\"RECV 1 1 <- 0\",\"F 1 0\","
    "\"SEND 1 0 -> 1\",\"RECV 1 0 <- 1 gradient\",\"F 1 1\",\"B 1 1\","
    "\"SEND 1 1 -> 0 gradient\",\"W 1 1\",\"BW 1 0\",\"REDUCE\",\"STEP\"],"
    "\"stages\":[{\"blocks\":[\"a\",\"b\"],\"replicas\":2,\"recompute\":\"full\","
    "\"devices\":[[\"n0/gpu0\",\"n0/gpu1\"]]},"
    "{\"blocks\":[\"c\"],\"replicas\":2,\"devices\":[[\"n0/gpu0\",\"n0/gpu1\"]]}]}";

/* What became of the files of either kind. */
static struct count {
    long files, parsed, accepted;
} counts[2], *made;

static const char *const words[] = {
    "a", "b", "c", "h", "w", "", "n1/gpu1", "1f1b", "gpipe", "none", "full", "tasuki-plan",
    "tasuki-cost", "\xc3\xa9", "zb-v", "interleaved", "F 1 0", "W 0 1", "SEND 1 0 -> 1",
    "RECV 0 1 <- 0", "stage 1 slots 2", "REDUCE",
};

static json_t *hostile_value(struct fuzz *fuzz)
{
    switch (fuzz_below(fuzz, 8)) {
    case 0: return json_integer(fuzz_number(fuzz));
    case 1: return json_real(ldexp(1, (int)fuzz_below(fuzz, 2000) - 1000));
    case 2: return json_integer((json_int_t)fuzz_below(fuzz, 10));
    case 3: return json_string(words[fuzz_below(fuzz, COUNT(words))]);
    case 4: return json_array();
    case 5: return json_object();
    case 6: return json_pack("[i,i]", (int)fuzz_below(fuzz, 5), (int)fuzz_below(fuzz, 5));
    default: return fuzz_once_in(fuzz, 2) ? json_null() : json_boolean(fuzz_once_in(fuzz, 2));
    }
}

/* Another value of the same type: most readers take it, and what comes behind them must cope. */
static json_t *gentle_value(struct fuzz *fuzz, json_t *old)
{
    if (json_is_integer(old) && !fuzz_once_in(fuzz, 4))
        return json_integer((json_int_t)fuzz_below(fuzz, 12));
    if (json_is_integer(old))
        return json_integer((json_int_t)1 << fuzz_below(fuzz, 40));
    if (json_is_real(old))
        return json_real(ldexp(1, (int)fuzz_below(fuzz, 80) - 40));
    if (json_is_true(old) || json_is_false(old))
        return json_boolean(fuzz_once_in(fuzz, 2));
    return json_incref(old);
}

static json_t *other_value(struct fuzz *fuzz, json_t *old, bool gentle)
{
    return gentle ? gentle_value(fuzz, old) : hostile_value(fuzz);
}

/* Something somewhere in the tree is replaced, removed, doubled or added. */
static void mutate(struct fuzz *fuzz, json_t *at, bool gentle)
{
    size_t n = json_is_array(at) ? json_array_size(at) : json_object_size(at);
    size_t i = fuzz_below(fuzz, n);
    json_t *inner = NULL;
    const char *key = NULL;

    if (json_is_array(at)) {
        inner = json_array_get(at, i);
    } else {
        void *iter = json_object_iter(at);

        for (; i > 0 && iter; i--)
            iter = json_object_iter_next(at, iter);
        key = iter ? json_object_iter_key(iter) : NULL;
        inner = iter ? json_object_iter_value(iter) : NULL;
        i = 0;
    }
    if (inner && (json_is_array(inner) || json_is_object(inner)) && !fuzz_once_in(fuzz, 6)) {
        mutate(fuzz, inner, gentle);
        return;
    }
    if (key && fuzz_once_in(fuzz, gentle ? 20 : 4))
        json_object_del(at, key);
    else if (key)
        json_object_set_new(at, !gentle && fuzz_once_in(fuzz, 12) ? "colour" : key,
                            other_value(fuzz, inner, gentle));
    else if (gentle && inner)
        json_array_set_new(at, i, other_value(fuzz, inner, gentle));
    else if (json_is_array(at) && n > 0 && fuzz_once_in(fuzz, 3))
        json_array_append_new(at, json_deep_copy(json_array_get(at, 0)));
    else if (json_is_array(at) && n > 0 && fuzz_once_in(fuzz, 3))
        json_array_remove(at, fuzz_below(fuzz, n));
    else if (json_is_array(at) && n > 0)
        json_array_set_new(at, fuzz_below(fuzz, n), hostile_value(fuzz));
}

static void make(struct fuzz *fuzz, bool structured, struct fuzz_file *file)
{
    bool is_plan = fuzz_once_in(fuzz, 2), gentle = fuzz_once_in(fuzz, 2);
    bool listed = is_plan && fuzz_once_in(fuzz, 2);
    json_t *json = json_loads(listed ? listed_text : is_plan ? plan_text : cost_text, 0, NULL);
    size_t n = structured ? 1 + fuzz_below(fuzz, gentle ? 6 : 3) : 0;
    char *text;

    made = &counts[is_plan];
    made->files++;
    while (n-- > 0)
        mutate(fuzz, json, gentle);
    text = json_dumps(json, JSON_COMPACT);
    fuzz_put(file, text, strlen(text));
    free(text);
    json_decref(json);
    if (!structured)
        fuzz_damage(fuzz, file);
}

/* A plan or an error, but an answer; and no time that is not one. */
static void plan_for(const struct cost *cost)
{
    struct cluster *cluster = cluster_open(CLUSTER, NULL);
    struct plan_request request = { .global_batch = 4, .micro_batches = 2 };
    struct err err = { 0 };
    struct plan *plan = partition(cost, cluster, &request, NULL, &err);

    if (plan ? isnan(plan->iteration_seconds) || plan->iteration_seconds < 0 : !err.text[0])
        abort();
    plan_free(plan);
    cluster_free(cluster);
}

static void simulate_plan(const struct plan *plan)
{
    struct cluster *cluster = cluster_open(CLUSTER, NULL);
    json_t *json = json_loads(cost_text, 0, NULL);
    struct cost *cost = cost_from_json("cost", json, NULL);
    struct err err = { 0 };

    if (plan->micro_batches <= 64 && simulate_seconds(plan, cost, cluster, &err) < 0 &&
        !err.text[0])
        abort();
    cost_free(cost);
    json_decref(json);
    cluster_free(cluster);
}

static enum fuzz_result try_cost(const char *path, const json_t *json, struct err *err)
{
    struct cost *cost = cost_from_json(path, json, err), *copy;
    json_t *written;

    if (!cost)
        return FUZZ_REFUSED;
    plan_for(cost);
    written = cost_to_json(cost);
    copy = cost_from_json("copy", written, NULL);
    if (!copy)
        abort();
    json_decref(written);
    cost_free(copy);
    cost_free(cost);
    return FUZZ_ACCEPTED;
}

static enum fuzz_result try(const char *path, struct err *err)
{
    json_t *json = json_load(path, err);
    const char *schema = json_string_value(json_object_get(json, "schema"));
    enum fuzz_result result = FUZZ_REFUSED;
    struct plan *plan;

    if (!json)
        return FUZZ_UNPARSED;
    made->parsed++;
    if (schema && strcmp(schema, "tasuki-cost") == 0) {
        result = try_cost(path, json, err);
    } else if ((plan = plan_from_json(path, json, err))) {
        simulate_plan(plan);
        plan_free(plan);
        result = FUZZ_ACCEPTED;
    }
    made->accepted += result == FUZZ_ACCEPTED;
    json_decref(json);
    return result;
}

int main(int argc, char **argv)
{
    static const struct fuzz_target target = { "plan", ".json", make, try };

    int code = fuzz_main(&target, argc, argv);

    for (int i = 0; i < 2; i++) {
        printf("# %s: %ld files, %ld past the parser, %ld accepted\n",
               i ? "plans" : "cost files", counts[i].files, counts[i].parsed,
               counts[i].accepted);
        if (counts[i].parsed * 10 < counts[i].files * 3)
            code = EXIT_FAILURE;
    }
    return code;
}
