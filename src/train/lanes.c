/* SPDX-License-Identifier: MIT */
#include "train/lanes.h"

#include <stdlib.h>

#include "base/mem.h"

/* 'to' goes on when all that is in 'from' by now is done. */
static int follow(const struct lanes *l, struct stream *to, struct stream *from,
                  struct event *event, struct err *err)
{
    return l->backend->event_record(event, from, err) < 0
               ? -1
               : l->backend->stream_wait(to, event, err);
}

static int make_events(struct lanes *l, struct device *device, struct err *err)
{
    l->made = l->backend->event_new(device, err);
    l->arrived = l->made ? l->backend->event_new(device, err) : NULL;
    for (int i = 0; l->arrived && i < l->n_slots; i++) {
        l->slots[i].used = l->backend->event_new(device, err);
        l->slots[i].sent = l->slots[i].used ? l->backend->event_new(device, err) : NULL;
        if (!l->slots[i].sent)
            return -1;
    }
    return l->arrived ? 0 : -1;
}

int lanes_init(struct lanes *lanes, const struct backend *backend, struct device *device,
               int n_slots, struct err *err)
{
    struct lanes *l = lanes;

    *l = (struct lanes){ .backend = backend, .n_slots = n_slots };
    l->slots = mem_new((size_t)n_slots, sizeof(*l->slots));
    l->compute = backend->stream_new(device, err);
    if (!l->compute)
        return -1;
    if (!backend->separate) {
        l->in = l->out = l->compute;
        return 0;
    }
    l->in = backend->stream_new(device, err);
    l->out = l->in ? backend->stream_new(device, err) : NULL;
    return l->out ? make_events(l, device, err) : -1;
}

void lanes_clear(struct lanes *lanes)
{
    struct lanes *l = lanes;

    for (int i = 0; i < l->n_slots; i++) {
        if (l->slots[i].used)
            l->backend->event_free(l->slots[i].used);
        if (l->slots[i].sent)
            l->backend->event_free(l->slots[i].sent);
    }
    if (l->made)
        l->backend->event_free(l->made);
    if (l->arrived)
        l->backend->event_free(l->arrived);
    if (l->out && l->out != l->compute)
        l->backend->stream_free(l->out);
    if (l->in && l->in != l->compute)
        l->backend->stream_free(l->in);
    if (l->compute)
        l->backend->stream_free(l->compute);
    free(l->slots);
    *l = (struct lanes){ 0 };
}

int lanes_begin_arrival(struct lanes *lanes, int slot, bool scratch, struct err *err)
{
    struct lane_slot *s = &lanes->slots[slot];

    if (!lanes->made)
        return 0;
    if ((s->is_used && lanes->backend->stream_wait(lanes->in, s->used, err) < 0) ||
        (s->is_sent && lanes->backend->stream_wait(lanes->in, s->sent, err) < 0))
        return -1;
    s->is_sent = false;         /* what is computed next follows what arrives */
    return scratch ? follow(lanes, lanes->in, lanes->compute, lanes->made, err) : 0;
}

int lanes_end_arrival(struct lanes *lanes, struct err *err)
{
    return lanes->made ? follow(lanes, lanes->compute, lanes->in, lanes->arrived, err) : 0;
}

int lanes_begin_use(struct lanes *lanes, int slot, struct err *err)
{
    struct lane_slot *s = &lanes->slots[slot];
    bool waits = s->is_sent;

    s->is_sent = false;
    return waits ? lanes->backend->stream_wait(lanes->compute, s->sent, err) : 0;
}

int lanes_end_use(struct lanes *lanes, int slot, struct err *err)
{
    if (!lanes->made)
        return 0;
    lanes->slots[slot].is_used = true;
    return lanes->backend->event_record(lanes->slots[slot].used, lanes->compute, err);
}

int lanes_begin_leaving(struct lanes *lanes, struct err *err)
{
    return lanes->made ? follow(lanes, lanes->out, lanes->compute, lanes->made, err) : 0;
}

int lanes_end_leaving(struct lanes *lanes, int slot, bool scratch, struct err *err)
{
    struct lane_slot *s = &lanes->slots[slot];

    if (!lanes->made)
        return 0;
    if (lanes->backend->event_record(s->sent, lanes->out, err) < 0)
        return -1;
    s->is_sent = !scratch;
    return scratch ? lanes->backend->stream_wait(lanes->compute, s->sent, err) : 0;
}
