/* SPDX-License-Identifier: MIT */
/* Are the ranks where the scheduler of the job means them to be? Slurm starts them itself; in
 * jobs of others mpirun does, which may not know of the job.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/job_nodes.h"
#include "train/session.h"

/* Open MPI 4 tells its ranks that a node has more of them than slots: --oversubscribe did that. */
static bool is_meant(void)
{
    const char *by_mpi = getenv("OMPI_MCA_mpi_oversubscribe");
    const char *by_user = getenv("TASUKI_OVERSUBSCRIBE");

    return (by_mpi && strcmp(by_mpi, "1") == 0) || (by_user && strcmp(by_user, "1") == 0);
}

static int64_t fewest_slots(const struct job_nodes *nodes)
{
    int64_t fewest = nodes->list[0].slots;

    for (int i = 1; i < nodes->n; i++)
        fewest = nodes->list[i].slots < fewest ? nodes->list[i].slots : fewest;
    return fewest;
}

/* The line that would have been right: on nodes that differ mpirun fills slots. */
static char *better_line(const struct job_nodes *nodes)
{
    int64_t each = fewest_slots(nodes);
    bool alike = each * nodes->n == nodes->slots;
    char *by = alike ? mem_printf(" --map-by ppr:%lld:node", (long long)each) : mem_strdup("");
    char *line = mem_printf("mpirun -n %lld%s tasuki ..., with --hostfile where this MPI does not "
                            "know the scheduler", (long long)nodes->slots, by);

    free(by);
    return line;
}

/* A task takes a slot, however many ranks it is. */
static bool leads(const struct session *s, int rank)
{
    return rank == 0 || comm_process(s->comm, rank - 1) != comm_process(s->comm, rank);
}

static int count_on(const struct session *s, int rank)
{
    int n = 0;

    for (int r = 0; r < s->size; r++)
        n += leads(s, r) && (rank < 0 || comm_same_host(s->comm, r, rank));
    return n;
}

static enum job_misfit find_misfit(const struct session *s, const struct job_nodes *nodes,
                                   int *rank)
{
    const char **names = mem_new((size_t)s->size, sizeof(*names));
    int *ranks = mem_new((size_t)s->size, sizeof(*ranks)), n = 0;
    enum job_misfit misfit;

    for (int r = 0; r < s->size; r++) {
        if (!leads(s, r))
            continue;
        names[n] = comm_host(s->comm, r);
        ranks[n++] = r;
    }
    misfit = job_nodes_fit(nodes, n, names, rank);
    if (*rank >= 0 && *rank < n)
        *rank = ranks[*rank];
    free(names);
    free(ranks);
    return misfit;
}

static int refuse(const struct session *s, const struct job_nodes *nodes, enum job_misfit misfit,
                  int rank, struct err *err)
{
    const char *host = rank < 0 ? "its nodes" : comm_host(s->comm, rank);
    char *line = better_line(nodes);
    int64_t slots = rank < 0 ? nodes->slots : 0;
    const char *what = count_on(s, -1) < s->size ? "tasks" : "ranks";

    if (misfit == JOB_ELSEWHERE) {
        err_set_code(err, EXIT_USAGE, "rank %d is on %s, which is no node of this job of %s "
                     "(%s=%s); use %s", rank, host, nodes->scheduler, nodes->variable, nodes->path, line);
    } else {
        slots = rank < 0 ? slots : job_nodes_find(nodes, host)->slots;
        err_set_code(err, EXIT_USAGE, "%d %s are on %s, where this job of %s has %lld slot%s "
                     "(%s=%s); use %s; where more are meant, mpirun --oversubscribe, or "
                     "TASUKI_OVERSUBSCRIBE=1", count_on(s, rank), what, host, nodes->scheduler,
                     (long long)slots, slots == 1 ? "" : "s", nodes->variable, nodes->path, line);
    }
    free(line);
    return -1;
}

static int check(const struct session *s, const struct job_nodes *nodes, int hosts, struct err *err)
{
    enum job_misfit misfit = JOB_FITS;
    char *line;
    int rank;

    /* A process that no launcher has started is where the user is. */
    if (strcmp(comm_name(s->comm), "mpi") == 0 || strcmp(comm_name(s->comm), "hybrid") == 0)
        misfit = find_misfit(s, nodes, &rank);
    if (misfit == JOB_ELSEWHERE || (misfit == JOB_CROWDED && !is_meant()))
        return refuse(s, nodes, misfit, rank, err);
    if (nodes->n <= hosts)
        return 0;
    line = better_line(nodes);
    log_warning("%d of the job's %d nodes have no rank (%s=%s); use %s", nodes->n - hosts, nodes->n,
                nodes->variable, nodes->path, line);
    free(line);
    return 0;
}

int session_check_nodes(const struct session *session, int hosts, struct err *err)
{
    struct job_nodes nodes;
    struct err unread = { 0 };
    int bad = 0;

    if (job_nodes_read(&nodes, &unread) < 0)
        log_warning("the nodes of this job are not known: %s", unread.text);
    else if (nodes.n > 0)
        bad = check(session, &nodes, hosts, err);
    job_nodes_clear(&nodes);
    return bad;
}
