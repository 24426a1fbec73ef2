/* SPDX-License-Identifier: MIT */
/* Ask Slurm, from wherever its controller can be reached; or read what it said once. */
#ifndef TASUKI_SLURM_SLURM_H
#define TASUKI_SLURM_SLURM_H

#include <stdbool.h>

#include "scheduler/slurm/driver.h"

struct cluster;
struct err;
struct topo_node;
struct topo_record;

/* "123", "123_4", "123+1"; EXIT_USAGE otherwise. */
int slurm_parse_job(const char *text, struct slurm_job_id *id, struct err *err);

/* What Slurm knows of a job, or of a partition. A module that is missing, a controller that
 * does not answer, and a job or partition that does not exist are errors. The question is put
 * in a child process: call it before other libraries start threads.
 */
struct slurm_facts *slurm_ask_job(const char *job, struct err *err);
/* Was that Slurm's answer that there is no such job? It was lost, or is long over. */
bool slurm_no_job(const struct err *err);
/* Or could its controller not be asked, now? */
bool slurm_is_away(const struct err *err);
/* Or is there nothing here to ask it with? */
bool slurm_is_absent(const struct err *err);
/* "": the one that jobs go to which name none. */
struct slurm_facts *slurm_ask_partition(const char *partition, struct err *err);

/* Is a node still one of the job's, as Slurm has it? */
int slurm_has_node(const char *job, const char *node, bool *has, struct err *err);
/* End a batch job and let it start again; where it may not, end it for good. */
int slurm_start_again(const char *job, struct err *err);
/* Send a signal to a step, "4": SIGKILL ends it, where no task can be reached otherwise. */
int slurm_signal_step(const char *job, const char *step, int number, struct err *err);

/* Nodes as the rest of the program knows them: of a job's, the GPUs that the job has; below
 * their switches. What Slurm does not know is "not known".
 */
struct topo_record *slurm_record(const struct slurm_facts *facts, struct err *err);
/* The switches above a node of a job, where its task was not told them: asks, and notes in the
 * node what came of it. 'name' is Slurm's name of the node, NULL: its host's.
 */
void slurm_find_switches(struct topo_node *node, const char *job, const char *name);
/* A report; malloc'ed. */
char *slurm_text(const struct slurm_facts *facts);
/* "job 123", "partition gpu"; malloc'ed. */
char *slurm_title(const struct slurm_facts *facts);

#endif
