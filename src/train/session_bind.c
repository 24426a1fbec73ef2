/* SPDX-License-Identifier: MIT */
/* The cores of ranks that are threads of one process. Those of a process by itself its launcher, or
 * bind_rank(), has chosen, as rail_choose() has its adapter.
 */
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "topology/node.h"
#include "topology/shares.h"
#include "train/bind.h"
#include "train/rail.h"
#include "train/session.h"

int session_bind(struct session *session, struct err *err)
{
    struct session *s = session;
    int gpu = s->gpu[0] ? topo_node_find_gpu(s->node, s->gpu) : -1;
    int *gpus = mem_new((size_t)s->size, sizeof(*gpus)), place = 0;
    int bad = comm_collect(s->comm, &gpu, sizeof(gpu), gpus, err);
    struct shares_request request = { .node = s->node, .gpus = gpus };

    for (int r = 0; r < s->size && !bad; r++) {
        if (comm_process(s->comm, r) != comm_process(s->comm, s->rank))
            continue;
        place = r == s->rank ? request.ranks : place;
        gpus[request.ranks++] = gpus[r];
    }
    if (!bad)
        rail_tell(s->node, gpu);
    if (request.ranks > 1)
        bind_thread(&request, place, s->settings.threads);
    free(gpus);
    return bad;
}
