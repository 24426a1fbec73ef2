/* SPDX-License-Identifier: MIT */
/* tasuki-slurm.so: what libslurm tells of jobs, partitions, nodes and switches. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/slurm/driver.h"
#include "scheduler/slurm/module_private.h"

static bool is_away(int code)
{
    return (code >= SLURM_COMMUNICATIONS_CONNECTION_ERROR &&
            code <= SLURM_COMMUNICATIONS_SHUTDOWN_ERROR) ||
           (code >= SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR &&
            code <= SLURMCTLD_COMMUNICATIONS_SHUTDOWN_ERROR) ||
           (code >= SLURM_PROTOCOL_SOCKET_IMPL_ZERO_RECV_LENGTH &&
            code <= SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT) || code == ESLURM_IN_STANDBY_MODE;
}

int module_no_job(struct err *err)
{
    err_set(err, "Slurm knows of no such job");
    err->number = SLURM_NO_JOB;
    return -1;
}

int module_refused(struct err *err, const char *what)
{
    int code = errno;

    if (code == ESLURM_INVALID_JOB_ID)
        return module_no_job(err);
    err_set(err, "Slurm: %s: %s", what, slurm_strerror(code));
    err->number = is_away(code) ? SLURM_AWAY : 0;
    return -1;
}

static const char *job_state(uint32_t state)
{
    static const char *const words[] = { "pending", "running", "suspended", "completed",
                                         "cancelled", "failed", "timed out", "node failed",
                                         "preempted", "boot failed", "deadline missed",
                                         "out of memory" };
    uint32_t base = state & JOB_STATE_BASE;

    return base < sizeof(words) / sizeof(words[0]) ? words[base] : "not known";
}

static void set_user(struct slurm_facts *facts, const slurm_job_info_t *job)
{
    const struct passwd *user = getpwuid(job->user_id);

    if (job->user_name && *job->user_name)
        module_set(&facts->user, job->user_name);
    else if (user)
        module_set(&facts->user, user->pw_name);
}

/* A limit in minutes as Slurm has them. */
static int64_t seconds_of(uint32_t minutes)
{
    return minutes == NO_VAL ? -1 : minutes == INFINITE ? SLURM_NO_LIMIT
                                                         : (int64_t)minutes * 60;
}

/* Tasks of an array that wait are one job, until each begins. */
static bool is_waiting_array(const slurm_job_info_t *job)
{
    return job->array_task_str && *job->array_task_str && job->array_task_id == NO_VAL;
}

/* A job without a script has none, and of all tasks that wait there is no single one. */
static void set_output(struct slurm_facts *facts, slurm_job_info_t *job)
{
    char path[PATH_MAX] = "";

    if (!job->batch_flag || is_waiting_array(job))
        return;
    slurm_get_job_stdout(path, sizeof(path), job);
    module_set(&facts->output, path);
}

/* While processes of it may be left it is "completing", too; but for those on a node that Slurm has
 * lost, and that may live.
 */
static bool is_over(const slurm_job_info_t *job)
{
    uint32_t state = job->job_state & JOB_STATE_BASE;

    return state > JOB_SUSPENDED && state != JOB_NODE_FAIL && !(job->job_state & JOB_COMPLETING);
}

static void set_job(struct slurm_facts *facts, slurm_job_info_t *job)
{
    uint32_t state = job->job_state & JOB_STATE_BASE;
    int64_t left = (int64_t)job->end_time - (int64_t)time(NULL);

    module_set(&facts->name, job->name);
    set_user(facts, job);
    module_set(&facts->state, job_state(job->job_state));
    module_set(&facts->partition, job->partition);
    if (is_waiting_array(job))
        module_set(&facts->tasks, job->array_task_str);
    set_output(facts, job);
    module_set(&facts->directory, job->work_dir);
    facts->requeue = job->batch_flag && job->requeue;
    facts->over = is_over(job);
    if (job->batch_flag)
        module_set(&facts->batch_host, job->batch_host);
    facts->time_limit = seconds_of(job->time_limit);
    if (state == JOB_RUNNING && facts->time_limit > 0)
        facts->time_left = left > 0 ? left : 0;
    if (state == JOB_PENDING) {
        module_set(&facts->why, job->state_desc);
        facts->nodes_wanted = job->num_nodes;
    }
}

/* "1-3,7,10-20:5%2"; a long list ends with "...", and may have any. */
static bool has_task(const char *tasks, int64_t task)
{
    const char *at = tasks;

    while (*at && *at != '%') {
        char *end;
        int64_t first = strtoll(at, &end, 10), last = first, step = 1;

        if (end == at)
            return true;
        if (*end == '-')
            last = strtoll(end + 1, &end, 10);
        if (*end == ':')
            step = strtoll(end + 1, &end, 10);
        if (task >= first && task <= last && step > 0 && (task - first) % step == 0)
            return true;
        at = *end == ',' ? end + 1 : end;
    }
    return false;
}

static bool is_task(const slurm_job_info_t *job, const struct slurm_job_id *id)
{
    return id->task >= 0 && job->array_job_id == id->job && job->array_task_id == (uint32_t)id->task;
}

/* Is it the job that was asked for, or a component of it? Of a task that has begun it is no other. */
static bool is_asked(const slurm_job_info_t *job, const struct slurm_job_id *id, bool has_begun)
{
    if (id->task >= 0 && is_waiting_array(job))
        return !has_begun && job->array_job_id == id->job && has_task(job->array_task_str, id->task);
    if (id->task >= 0)
        return is_task(job, id);
    if (id->component >= 0)
        return job->het_job_id == id->job && job->het_job_offset == (uint32_t)id->component;
    return job->job_id == id->job || (job->het_job_id != 0 && job->het_job_id == id->job);
}

/* The nodes of a job, which is one component of 'facts', and the GPUs it has of each. */
static int add_job_nodes(struct slurm_facts *facts, const slurm_job_info_t *job,
                         const node_info_msg_t *all, struct err *err)
{
    int first = facts->n_nodes;

    if (!job->nodes || !*job->nodes)
        return 0;
    if (module_add_nodes(facts, job->nodes, all, err))
        return -1;
    for (uint32_t i = 0; i < job->gres_detail_cnt; i++)
        if (first + (int)i < facts->n_nodes)
            module_set(&facts->nodes[first + (int)i].given, job->gres_detail_str[i]);
    return 0;
}

static int add_jobs(struct slurm_facts *facts, const struct slurm_job_id *id,
                    const job_info_msg_t *jobs, struct err *err)
{
    node_info_msg_t *nodes = NULL;
    int found = 0, status = 0;
    bool has_begun = false;

    for (uint32_t i = 0; i < jobs->record_count; i++)
        has_begun = has_begun || is_task(&jobs->job_array[i], id);
    if (slurm_load_node(0, &nodes, SHOW_ALL | SHOW_DETAIL | SHOW_MIXED))
        return module_refused(err, "its nodes");
    for (uint32_t i = 0; i < jobs->record_count && !status; i++) {
        slurm_job_info_t *job = &jobs->job_array[i];

        if (!is_asked(job, id, has_begun))
            continue;
        if (id->task >= 0)      /* of one that waits it is not known yet */
            job->array_task_id = (uint32_t)id->task;
        if (found++ == 0)
            set_job(facts, job);
        facts->over = facts->over && is_over(job);
        status = add_job_nodes(facts, job, nodes, err);
    }
    slurm_free_node_info_msg(nodes);
    if (!status && !found)
        status = module_no_job(err);
    return status;
}

/* Slurm's own plugins look for symbols of libslurm without naming it: they must find it among
 * those that everybody sees.
 */
void module_start(void)
{
    union {
        void (*function)(const char *);
        void *address;
    } known = { slurm_init };
    Dl_info library;

    if (dladdr(known.address, &library))
        dlopen(library.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    slurm_init(NULL);
}

static int ask_job(const struct slurm_job_id *id, struct slurm_facts *facts, struct err *err)
{
    job_info_msg_t *jobs = NULL;
    int status;

    module_start();
    if (slurm_load_job(&jobs, id->job, SHOW_ALL | SHOW_DETAIL))
        return module_refused(err, "the job");
    status = add_jobs(facts, id, jobs, err);
    slurm_free_job_info_msg(jobs);
    return status ? -1 : module_add_cluster(facts, err);
}

static void set_partition(struct slurm_facts *facts, const partition_info_t *partition)
{
    module_set(&facts->partition, partition->name);
    module_set(&facts->state, partition->state_up == PARTITION_UP      ? "up"
                       : partition->state_up == PARTITION_DOWN  ? "down"
                       : partition->state_up == PARTITION_DRAIN ? "drain"
                                                                : "inactive");
    facts->time_limit = seconds_of(partition->max_time);
    facts->time_default = seconds_of(partition->default_time);
    facts->nodes_least = partition->min_nodes;
    facts->nodes_most = partition->max_nodes == INFINITE ? SLURM_NO_LIMIT
                                                         : (int64_t)partition->max_nodes;
}

static bool is_wanted(const partition_info_t *partition, const char *name)
{
    if (!*name)
        return (partition->flags & PART_FLAG_DEFAULT) != 0;
    return partition->name && strcmp(partition->name, name) == 0;
}

/* The names of those there are. */
static int no_partition(const partition_info_msg_t *partitions, const char *name,
                        struct err *err)
{
    if (!*name)
        return err_set(err, "Slurm has none: name one");
    err_set(err, "Slurm knows of no such partition");
    for (uint32_t i = 0; i < partitions->record_count && i < 16; i++)
        if (partitions->partition_array[i].name)
            err_hint(err, "%s%s", i ? "" : "there are: ", partitions->partition_array[i].name);
    return -1;
}

static int add_partition(struct slurm_facts *facts, const char *name,
                         const partition_info_msg_t *partitions, struct err *err)
{
    for (uint32_t i = 0; i < partitions->record_count; i++) {
        const partition_info_t *partition = &partitions->partition_array[i];
        node_info_msg_t *nodes = NULL;
        int status = 0;

        if (!is_wanted(partition, name))
            continue;
        set_partition(facts, partition);
        if (!partition->nodes || !*partition->nodes)
            return 0;
        if (slurm_load_node(0, &nodes, SHOW_ALL | SHOW_DETAIL | SHOW_MIXED))
            return module_refused(err, "its nodes");
        status = module_add_nodes(facts, partition->nodes, nodes, err);
        slurm_free_node_info_msg(nodes);
        return status;
    }
    return no_partition(partitions, name, err);
}

static int ask_partition(const char *name, struct slurm_facts *facts, struct err *err)
{
    partition_info_msg_t *partitions = NULL;
    int status;

    module_start();
    if (slurm_load_partitions(0, &partitions, SHOW_ALL))
        return module_refused(err, "the partitions");
    status = add_partition(facts, name, partitions, err);
    slurm_free_partition_info_msg(partitions);
    return status ? -1 : module_add_cluster(facts, err);
}

__attribute__((visibility("default"))) extern const struct slurm_driver tasuki_slurm_driver;
const struct slurm_driver tasuki_slurm_driver = {
    .version = SLURM_DRIVER_VERSION,
    .facts_size = sizeof(struct slurm_facts),
    .node_size = sizeof(struct slurm_node),
    .switch_size = sizeof(struct slurm_switch),
    .err_size = sizeof(struct err),
    .job = ask_job,
    .partition = ask_partition,
    .has_node = module_has_node,
    .requeue = module_requeue,
    .end_job = module_end_job,
    .signal_step = module_signal_step,
};
