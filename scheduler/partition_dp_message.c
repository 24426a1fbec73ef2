/* SPDX-License-Identifier: MIT */
#include "scheduler/partition_dp.h"

#include "base/extreme.h"

void dp_add_message(const struct run *run, const struct node *behind, const struct option *option,
                    int device, struct node *node)
{
    const struct share_table *own = dp_intervals(run, option->share);
    const struct share_table *share =
        own->samples > behind->share->samples ? own : dp_intervals(run, behind->share);
    int i = behind->first, j = behind->end;
    struct message_link link =
        search_link(run->search, device, option->replicas, device + option->replicas);
    double seconds;

    seconds = search_message(&link, staircase_at(&share->received, i, j),
                             staircase_at(&own->received, i, j)) +
              search_message(&link, staircase_at(&share->gradient, i, j),
                             staircase_at(&own->gradient, i, j));
    seconds = dmax(seconds, behind->own);
    node->bottleneck = dmax(behind->bottleneck, seconds);
    if (closed_sums(run->search, run->m, behind->stages))
        node->sum += seconds;
}

/* Of two: see 'beside'. Most devices of a large cluster are never asked for. */
static const struct message_link *links_to(const struct run *run, int device)
{
    struct message_link *beside = &run->scratch->beside[2 * device];

    if (beside->link.bandwidth <= 0) {
        beside[0] = search_link(run->search, device - 1, 1, device);
        beside[1] = search_link(run->search, 0, 1, device);
    }
    return beside;
}

void dp_set_message(const struct run *run, int device, struct node *node)
{
    const struct message_link *beside;
    const struct share_table *whole;
    double bytes;

    node->message = 0;
    if (node->first == 0 || device == 0)
        return;
    beside = links_to(run, device);
    whole = dp_intervals(run, run->whole);
    bytes = staircase_at(&whole->received, node->first, node->end) +
            staircase_at(&whole->gradient, node->first, node->end);
    node->message = dmax(search_message(&beside[0], bytes, bytes),
                         search_message(&beside[1], bytes, bytes)) * 2;
}
