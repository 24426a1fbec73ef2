/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "base/json.h"
#include "train/run_view.h"

static void set_number(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null());
}

static void set_count(json_t *object, const char *key, int64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void set_text(json_t *object, const char *key, const char *value)
{
    json_object_set_new(object, key,
                        value[0] && json_is_text(value) ? json_string(value) : json_null());
}

static json_t *ranks_to_json(const struct run_state *s)
{
    json_t *ranks = json_array();

    for (int r = 0; r < s->n_reported; r++) {
        const struct run_rank *rank = &s->ranks[r];
        json_t *json = json_object();

        set_count(json, "rank", r);
        set_text(json, "host", r < s->n_hosts ? s->hosts[r] : "");
        json_object_set_new(json, "stage",
                            rank->stage >= 0 ? json_integer(rank->stage) : json_null());
        set_number(json, "compute", rank->compute);
        set_number(json, "idle", rank->idle);
        set_number(json, "messages", rank->messages);
        set_number(json, "reduce", rank->reduce);
        set_number(json, "data", rank->data);
        set_number(json, "memory", rank->memory);
        set_number(json, "factor", rank->factor);
        json_object_set_new(json, "straggler", json_boolean(rank->factor >= RUN_STRAGGLER));
        json_array_append_new(ranks, json);
    }
    return ranks;
}

static json_t *events_to_json(const struct run_state *s)
{
    json_t *events = json_array();
    int64_t n = s->n_events < RUN_EVENTS ? s->n_events : RUN_EVENTS;

    for (int64_t i = s->n_events - n; i < s->n_events; i++) {
        json_t *json = json_object();

        set_count(json, "step", s->events[i % RUN_EVENTS].step);
        set_text(json, "text", s->events[i % RUN_EVENTS].text);
        json_array_append_new(events, json);
    }
    return events;
}

static json_t *curve_to_json(const struct run_state *s)
{
    json_t *curve = json_array();

    for (int i = 0; i < s->n_points; i++) {
        json_t *point = json_array();

        json_array_append_new(point, json_integer((json_int_t)s->points[i].step));
        json_array_append_new(point, json_real(s->points[i].loss));
        json_array_append_new(curve, point);
    }
    return curve;
}

static void set_figures(json_t *top, const struct run_state *s)
{
    set_count(top, "step", s->step);
    set_count(top, "steps", s->steps);
    set_count(top, "epoch", s->epoch);
    set_number(top, "loss", s->loss);
    set_number(top, "best_loss", s->best);
    set_count(top, "best_step", s->best_step);
    set_number(top, "accuracy", s->accuracy);
    set_number(top, "lr", s->lr);
    set_number(top, "gradient_norm", s->norm);
    set_number(top, "seconds", run_state_seconds(s));
    set_number(top, "samples_per_second", run_state_rate(s));
    set_number(top, "predicted_seconds", s->predicted);
    set_number(top, "seconds_left", run_state_left(s));
    set_count(top, "test_step", s->test_step);
    set_number(top, "test_loss", s->test_loss);
    set_number(top, "test_accuracy", s->test_accuracy);
    set_count(top, "bad_steps", s->n_bad);
    set_count(top, "last_bad_step", s->last_bad);
    set_count(top, "checkpoint_step", s->checkpoint_step);
    set_text(top, "checkpoint_directory", s->directory);
}

json_t *run_view_json(const struct run_state *state, const char *log)
{
    json_t *top = json_object();

    set_text(top, "schema", "tasuki-watch");
    set_count(top, "version", 1);
    set_text(top, "log", log);
    set_text(top, "phase", run_phase_name(state->phase));
    set_text(top, "model", state->model);
    set_text(top, "backend", state->backend);
    set_text(top, "device", state->device);
    set_count(top, "ranks", state->n_ranks);
    set_text(top, "schedule", state->schedule);
    set_figures(top, state);
    json_object_set_new(top, "use", ranks_to_json(state));
    json_object_set_new(top, "events", events_to_json(state));
    json_object_set_new(top, "curve", curve_to_json(state));
    set_text(top, "error", state->error);
    set_count(top, "lines", state->lines);
    set_count(top, "malformed", state->bad);
    set_text(top, "first_malformed", state->first_bad);
    return top;
}
