/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "train/run_state.h"

#define MOST_RANKS (1 << 20)

/* Reading without trust --------------------------------------------------------------- */

/* What a terminal would obey is not for it: control characters, C1 in UTF-8 included. */
static void copy_text(char out[RUN_TEXT], const char *text)
{
    size_t n = 0;

    for (; text && *text && n < RUN_TEXT - 1; text++) {
        unsigned char c = (unsigned char)*text, next = (unsigned char)text[1];

        if (c < ' ' || c == 0x7f || (c == 0xc2 && next >= 0x80 && next < 0xa0))
            out[n++] = '?';
        else
            out[n++] = (char)c;
        if (c == 0xc2 && next >= 0x80 && next < 0xa0)
            text++;
    }
    /* No character of UTF-8 is cut in two. */
    if (text && *text)
        while (n > 0 && ((unsigned char)*text & 0xc0) == 0x80) {
            text--;
            n--;
        }
    out[n] = '\0';
}

static void get_text(const json_t *object, const char *key, char out[RUN_TEXT])
{
    copy_text(out, json_string_value(json_object_get(object, key)));
}

static double get_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static double get_least(const json_t *object, const char *key, double least)
{
    double value = get_number(object, key);

    return value >= least ? value : NAN;
}

/* A count; 0 where it is none. */
static int64_t get_count(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    json_int_t count = json_integer_value(value);

    return count > 0 ? count : 0;
}

static int array_size(const json_t *array)
{
    size_t n = json_array_size(array);

    return n > MOST_RANKS ? MOST_RANKS : (int)n;
}

static void refuse(struct run_state *s, const char *why)
{
    char text[2 * RUN_TEXT];

    if (s->bad++ > 0)
        return;
    snprintf(text, sizeof(text), "line %lld: %.300s", (long long)s->lines, why);
    copy_text(s->first_bad, text);
}

static void note(struct run_state *s, int64_t step, const char *text)
{
    struct run_event *event = &s->events[s->n_events++ % RUN_EVENTS];

    event->step = step;
    copy_text(event->text, text);
}

/* Steps ------------------------------------------------------------------------------- */

static void thin_out(struct run_state *s)
{
    for (int i = 0; i < RUN_POINTS / 2; i++)
        s->points[i] = (struct run_point){
            .step = s->points[2 * i + 1].step,
            .loss = s->points[2 * i].loss / 2 + s->points[2 * i + 1].loss / 2,
        };
    s->n_points = RUN_POINTS / 2;
    s->stride *= 2;
}

static void add_point(struct run_state *s, int64_t step, double loss)
{
    s->sum += (loss - s->sum) / ++s->n_sum;
    if (!isfinite(s->sum))
        s->sum = loss;
    if (s->n_sum < s->stride)
        return;
    s->points[s->n_points++] = (struct run_point){ .step = step, .loss = s->sum };
    if (s->n_points == RUN_POINTS)
        thin_out(s);
    s->n_sum = 0;
    s->sum = 0;
}

static void read_step(struct run_state *s, const json_t *line)
{
    int64_t step = get_count(line, "step");
    double seconds = get_least(line, "seconds", 0);
    double rate = get_least(line, "samples_per_second", 0);

    if (step == 0 || !json_object_get(line, "loss")) {
        refuse(s, "a step without its number or loss");
        return;
    }
    s->phase = RUN_TRAINING;
    s->step = step;
    s->epoch = get_count(line, "epoch");
    s->loss = get_number(line, "loss");
    s->accuracy = get_number(line, "accuracy");
    s->lr = get_number(line, "lr");
    s->norm = get_number(line, "gradient_norm");
    s->predicted = get_least(line, "predicted_seconds", 0);
    if (!isnan(seconds) && !isnan(rate)) {
        s->seconds[s->n_recent % RUN_RECENT] = seconds;
        s->rates[s->n_recent++ % RUN_RECENT] = rate;
    }
    if (isnan(s->loss))
        return;
    add_point(s, step, s->loss);
    if (!(s->best <= s->loss)) {
        s->best = s->loss;
        s->best_step = step;
    }
}

/* Start ------------------------------------------------------------------------------- */

/* Steps that are done anew, since a checkpoint before them is resumed. */
static void go_back(struct run_state *s)
{
    while (s->n_points > 0 && s->points[s->n_points - 1].step >= s->first_step)
        s->n_points--;
    s->n_sum = 0;
    s->sum = 0;
    if (s->best_step < s->first_step)
        return;
    s->best = NAN;
    s->best_step = 0;
    for (int i = 0; i < s->n_points; i++)
        if (!(s->best <= s->points[i].loss)) {
            s->best = s->points[i].loss;
            s->best_step = s->points[i].step;
        }
}

static void read_ranks_of_start(struct run_state *s, const json_t *line)
{
    const json_t *replicas = json_object_get(line, "replicas");
    const json_t *hosts = json_object_get(line, "hosts");

    for (int i = 0; i < s->n_hosts; i++)
        free(s->hosts[i]);
    free(s->hosts);
    free(s->replicas);
    s->n_stages = array_size(replicas);
    s->replicas = mem_new((size_t)s->n_stages, sizeof(int));
    for (int i = 0; i < s->n_stages; i++) {
        json_int_t n = json_integer_value(json_array_get(replicas, (size_t)i));

        s->replicas[i] = n > 0 && n <= MOST_RANKS ? (int)n : 0;
    }
    s->n_hosts = array_size(hosts);
    s->hosts = mem_new((size_t)s->n_hosts, sizeof(char *));
    for (int i = 0; i < s->n_hosts; i++) {
        char host[RUN_TEXT];

        copy_text(host, json_string_value(json_array_get(hosts, (size_t)i)));
        s->hosts[i] = mem_strdup(host);
    }
}

static void read_start(struct run_state *s, const json_t *line)
{
    const json_t *plan = json_object_get(line, "plan");
    int64_t ranks = get_count(line, "ranks");
    char text[RUN_TEXT];

    s->phase = RUN_STARTING;
    s->first_step = get_count(line, "first_step");
    s->steps = get_count(line, "steps");
    get_text(line, "model", s->model);
    get_text(line, "backend", s->backend);
    get_text(line, "device", s->device);
    get_text(plan, "schedule", s->schedule);
    s->pipelines = get_count(plan, "pipelines");
    s->micro_batches = get_count(plan, "micro_batches");
    s->micro_batch = get_count(plan, "micro_batch");
    s->n_ranks = ranks <= MOST_RANKS ? (int)ranks : 0;
    s->predicted = get_least(plan, "iteration_seconds", 0);
    s->step = s->first_step > 0 ? s->first_step - 1 : 0;
    s->n_recent = 0;
    s->paused = 0;
    s->n_bad = 0;
    s->n_reported = s->n_peaks = 0;
    s->error[0] = '\0';
    go_back(s);
    read_ranks_of_start(s, line);
    if (s->first_step > 1)
        snprintf(text, sizeof(text), "resumed");
    else
        snprintf(text, sizeof(text), "started on %d rank%s", s->n_ranks,
                 s->n_ranks == 1 ? "" : "s");
    note(s, s->step, text);
}

/* Other events ------------------------------------------------------------------------ */

static void add_pause(struct run_state *s, const json_t *line)
{
    double seconds = get_least(line, "seconds", 0);

    if (!isnan(seconds))
        s->paused += seconds;
}

static void read_evaluation(struct run_state *s, const json_t *line)
{
    char text[RUN_TEXT];
    int used;

    s->test_step = get_count(line, "step");
    s->test_loss = get_number(line, "loss");
    s->test_accuracy = get_number(line, "accuracy");
    if (!isnan(s->test_loss) && !(s->test_best <= s->test_loss))
        s->test_best = s->test_loss;
    add_pause(s, line);
    used = snprintf(text, sizeof(text), "test loss %.6g", s->test_loss);
    if (!isnan(s->test_accuracy))
        snprintf(text + used, sizeof(text) - (size_t)used, ", accuracy %.2f %%",
                 100 * s->test_accuracy);
    note(s, s->test_step, text);
}

static void read_checkpoint(struct run_state *s, const json_t *line)
{
    char text[RUN_TEXT + 64];

    s->checkpoint_step = get_count(line, "step");
    s->n_checkpoints++;
    get_text(line, "directory", s->directory);
    add_pause(s, line);
    snprintf(text, sizeof(text), "checkpoint in %s, %.3g s", s->directory,
             get_number(line, "seconds"));
    note(s, s->checkpoint_step, text);
}

static void read_bad_step(struct run_state *s, const json_t *line)
{
    char cause[RUN_TEXT], tensor[RUN_TEXT], action[RUN_TEXT], text[3 * RUN_TEXT + 32];

    s->last_bad = get_count(line, "step");
    s->n_bad = get_count(line, "count");
    get_text(line, "cause", cause);
    get_text(line, "tensor", tensor);
    get_text(line, "action", action);
    snprintf(text, sizeof(text), "a bad step: %s%s%s; %s", cause, tensor[0] ? " of " : "", tensor,
             action);
    note(s, s->last_bad, text);
}

static void read_rollback(struct run_state *s, const json_t *line)
{
    char text[RUN_TEXT];

    snprintf(text, sizeof(text), "back to the checkpoint of step %lld",
             (long long)get_count(line, "to"));
    note(s, get_count(line, "step"), text);
}

static void read_trial(struct run_state *s, const json_t *line)
{
    char text[RUN_TEXT];

    snprintf(text, sizeof(text), "trial %lld: predicted %.4g ms, measured %.4g ms",
             (long long)get_count(line, "trial"), 1e3 * get_number(line, "predicted_seconds"),
             1e3 * get_number(line, "measured_seconds"));
    note(s, s->step, text);
}

static void read_staged(struct run_state *s, const json_t *line)
{
    char text[RUN_TEXT];

    snprintf(text, sizeof(text), "data staged on %lld nodes in %.3g s",
             (long long)get_count(line, "nodes"), get_number(line, "seconds"));
    note(s, s->step, text);
}

static void read_memory(struct run_state *s, const json_t *line)
{
    const json_t *peaks = json_object_get(line, "peak");

    free(s->peaks);
    s->n_peaks = array_size(peaks);
    s->peaks = mem_new((size_t)s->n_peaks, sizeof(double));
    for (int i = 0; i < s->n_peaks; i++)
        s->peaks[i] = json_number_value(json_array_get(peaks, (size_t)i));
}

static double share(const json_t *rank, const char *key, double seconds)
{
    double value = get_least(rank, key, 0) / seconds;

    return value >= 0 ? fmin(value, 1) : 0;
}

/* Of "ranks" and of "end". */
static void read_ranks(struct run_state *s, const json_t *line)
{
    const json_t *ranks = json_object_get(line, "ranks");
    double seconds = get_least(line, "seconds", 0);
    int n = array_size(ranks);

    if (n == 0 || !(seconds > 0)) {
        s->n_reported = 0;
        return;
    }
    free(s->ranks);
    s->n_reported = n;
    s->ranks = mem_new((size_t)n, sizeof(*s->ranks));
    for (int i = 0; i < n; i++) {
        const json_t *rank = json_array_get(ranks, (size_t)i);
        const json_t *stage = json_object_get(rank, "stage");
        json_int_t number = json_integer_value(stage);

        s->ranks[i] = (struct run_rank){
            .stage = json_is_integer(stage) && number >= 0 && number < MOST_RANKS ? (int)number
                                                                                  : -1,
            .samples = get_least(rank, "samples", 0),
            .compute = share(rank, "compute", seconds), .idle = share(rank, "idle", seconds),
            .messages = share(rank, "messages", seconds),
            .reduce = share(rank, "reduce", seconds), .data = share(rank, "data", seconds),
            .memory = get_least(rank, "memory", 0),
        };
        if (isnan(s->ranks[i].memory) && s->n_peaks == n)
            s->ranks[i].memory = s->peaks[i];
    }
    run_state_compare(s);
}

/* After "ranks", from which no forecast for a rank that is alone in its stage is known. */
static void read_stragglers(struct run_state *s, const json_t *line)
{
    const json_t *ranks = json_object_get(line, "ranks");

    for (int i = 0; i < array_size(ranks); i++) {
        const json_t *one = json_array_get(ranks, (size_t)i);
        const json_t *rank = json_object_get(one, "rank");
        const char *beyond = json_string_value(json_object_get(one, "beyond"));
        json_int_t r = json_is_integer(rank) ? json_integer_value(rank) : -1;
        double factor = get_least(one, "factor", 0);

        if (!beyond || strcmp(beyond, "forecast") != 0 || r < 0 || r >= s->n_reported ||
            isnan(factor))
            continue;
        s->ranks[r].factor = factor;
        s->ranks[r].alone = true;
    }
}

static void read_end(struct run_state *s, const json_t *line)
{
    const char *outcome = json_string_value(json_object_get(line, "outcome"));

    read_ranks(s, line);
    if (outcome && strcmp(outcome, "lost") == 0) {
        s->phase = RUN_FAILED;
        copy_text(s->error, "stopped by a signal; without --checkpoint nothing was kept");
    } else if (outcome && strcmp(outcome, "stopped") == 0) {
        s->phase = RUN_STOPPED;
        note(s, s->step, "stopped by a signal, to be resumed");
    } else {
        s->phase = RUN_DONE;
        note(s, s->step, "the end");
    }
}

static void read_failed(struct run_state *s, const json_t *line)
{
    s->phase = RUN_FAILED;
    get_text(line, "error", s->error);
}

static const struct {
    const char *name;
    void (*read)(struct run_state *state, const json_t *line);
} events[] = {
    { "start", read_start }, { "evaluation", read_evaluation },
    { "checkpoint", read_checkpoint }, { "trial", read_trial }, { "staged", read_staged },
    { "bad_step", read_bad_step }, { "rollback", read_rollback }, { "memory", read_memory },
    { "ranks", read_ranks }, { "stragglers", read_stragglers },
    { "end", read_end }, { "failed", read_failed },
};

/* Events of versions to come are no mistake. */
static void read_event(struct run_state *s, const char *name, const json_t *line)
{
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (strcmp(events[i].name, name) == 0)
            events[i].read(s, line);
}

static void read_object(struct run_state *s, const json_t *line)
{
    const json_t *event = json_object_get(line, "event");

    if (!json_is_object(line))
        refuse(s, "expected an object");
    else if (json_is_string(event))
        read_event(s, json_string_value(event), line);
    else if (event)
        refuse(s, "event: expected a string");
    else
        read_step(s, line);
}

void run_state_line(struct run_state *state, const char *text, size_t length)
{
    struct err err = { 0 };
    json_t *line;

    state->lines++;
    if (!text) {
        refuse(state, "too long");
        return;
    }
    line = json_parse("not JSON", text, length, &err);
    if (line)
        read_object(state, line);
    else
        refuse(state, err.text);
    json_decref(line);
}
