/* SPDX-License-Identifier: MIT */
#include "train/order.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "scheduler/plan.h"

void order_free(int n, char **nodes)
{
    for (int i = 0; i < n; i++)
        free(nodes[i]);
    free(nodes);
}

/* A device may have several stages. */
static bool named_before(const struct plan *plan, int stage, int index)
{
    const char *id = plan->stages[stage].devices[index];

    for (int s = 0; s <= stage; s++) {
        int n = s < stage ? plan->stages[s].replicas * plan->pipelines : index;

        for (int i = 0; i < n; i++)
            if (strcmp(plan->stages[s].devices[i], id) == 0)
                return true;
    }
    return false;
}

int order_of_plan(const struct plan *plan, char ***nodes)
{
    int n = 0;

    *nodes = NULL;
    for (int s = 0; s < plan->n_stages; s++)
        for (int i = 0; i < plan->stages[s].replicas * plan->pipelines; i++) {
            const char *id = plan->stages[s].devices[i], *slash = strrchr(id, '/');

            if (!slash || slash == id) {
                order_free(n, *nodes);
                *nodes = NULL;
                return 0;
            }
            if (!named_before(plan, s, i))
                *(char **)mem_push((void **)nodes, &n, sizeof(char *)) =
                    strndup(id, (size_t)(slash - id));
        }
    return n;
}

int order_check(const struct plan *plan, const struct comm *comm, struct err *err)
{
    const char *said = getenv("TASUKI_ORDER");
    char **nodes;
    int n, bad = 0;

    if (!said || strcmp(said, "plan") != 0)
        return 0;
    n = order_of_plan(plan, &nodes);
    for (int r = 0; r < n && !bad; r++)
        if (r >= comm_size(comm) || strcmp(comm_host(comm, r), nodes[r]) != 0)
            bad = err_set(err, "rank %d is on %s; in the order of the plan it is on %s", r,
                          r < comm_size(comm) ? comm_host(comm, r) : "no node", nodes[r]);
    order_free(n, nodes);
    return bad;
}
