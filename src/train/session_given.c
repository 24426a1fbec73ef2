/* SPDX-License-Identifier: MIT */
/* Is the GPU that a rank takes one that Slurm gave its step? Where Slurm confines devices there is no
 * other. Else a CUDA_VISIBLE_DEVICES that was changed, or CUDA's order of GPUs of several kinds, may
 * lead to one that is another job's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "topology/given.h"
#include "topology/node_read.h"
#include "train/session.h"

#define MOST_GPUS 32        /* of a step on a node: with more nothing is checked */

/* What a rank tells the others. */
struct told {
    int n;                      /* GPUs that it knows it was given; 0: it cannot tell */
    char gpus[MOST_GPUS][16];   /* their addresses */
};

static struct told tell(const struct session *s, const struct topo_given *given)
{
    struct told told = { 0 };

    for (int i = 0; given->name && given->n <= MOST_GPUS && i < given->n; i++)
        snprintf(told.gpus[told.n++], sizeof(told.gpus[0]), "%.15s",
                 s->node->gpus[given->gpus[i]].address);
    return told;
}

/* A task that was bound to some of the step's GPUs may take those of its neighbours. */
static bool is_given(const struct session *s, const struct told *all, const char *address)
{
    for (int r = 0; r < s->size; r++)
        for (int i = 0; comm_same_host(s->comm, r, s->rank) && i < all[r].n; i++)
            if (strcmp(all[r].gpus[i], address) == 0)
                return true;
    return false;
}

static char *addresses(const struct told *told)
{
    char *text = mem_strdup("");

    for (int i = 0; i < told->n; i++) {
        char *more = mem_printf("%s%s%s", text, i ? ", " : "", told->gpus[i]);

        free(text);
        text = more;
    }
    return text;
}

static int refuse(const struct session *s, const struct topo_given *given, const struct told *told,
                  struct err *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char *list = addresses(told);

    err_set_code(err, EXIT_USAGE,
                 "rank %d (%s) would compute on GPU %s%s%s%s, which Slurm did not give this step: "
                 "it gave %s (%s=%s); use CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=%s, "
                 "or ask for more GPUs", s->rank, comm_host(s->comm, s->rank), s->gpu,
                 visible ? " (CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "",
                 visible ? ")" : "", list, given->name, given->list, given->list);
    free(list);
    return -1;
}

int session_check_given(struct session *session, struct err *err)
{
    struct session *s = session;
    const char *proc = getenv("TASUKI_PROCFS");
    struct topo_input input = { .proc = proc && *proc ? proc : "/proc" };
    struct topo_given given = topo_given_gpus(s->node, &input);
    struct told mine = tell(s, &given), *all = mem_new((size_t)s->size, sizeof(*all));
    int bad = comm_collect(s->comm, &mine, sizeof(mine), all, err);

    if (!bad) {
        bool wrong = mine.n > 0 && s->gpu[0] && !is_given(s, all, s->gpu);

        bad = session_agree(s, wrong && refuse(s, &given, &mine, err) < 0, err);
    }
    topo_given_clear(&given);
    free(all);
    return bad;
}
