/* SPDX-License-Identifier: MIT */
#include "scheduler/slurm/slurm.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/module.h"

#define PATIENCE 30         /* seconds: libslurm itself tries a controller for about 10 */

struct question {
    struct slurm_job_id job;
    const char *partition;  /* NULL: of the job */
    const struct slurm_driver *driver;
};

static int parse_number(const char **text, uint32_t most, uint32_t *value)
{
    char *end;
    unsigned long number;

    if (!isdigit((unsigned char)**text))
        return -1;
    errno = 0;
    number = strtoul(*text, &end, 10);
    *text = end;
    *value = (uint32_t)number;
    return errno || number > most ? -1 : 0;
}

int slurm_parse_job(const char *text, struct slurm_job_id *id, struct err *err)
{
    const char *at = text;
    uint32_t part = 0;
    char kind = '\0';

    *id = (struct slurm_job_id){ .task = -1, .component = -1 };
    if (parse_number(&at, UINT32_MAX, &id->job) == 0 && id->job > 0) {
        if (*at == '_' || *at == '+')
            kind = *at++;
        if ((!kind || parse_number(&at, UINT32_MAX, &part) == 0) && !*at) {
            id->task = kind == '_' ? (int64_t)part : -1;
            id->component = kind == '+' ? (int64_t)part : -1;
            return 0;
        }
    }
    return err_set_code(err, EXIT_USAGE, "--job: expected a job's number such as 123, 123_4 of "
                        "an array or 123+1, got \"%s\"", text);
}

static const struct slurm_driver *load_driver(struct err *err)
{
    const struct slurm_driver *driver;
    void *module = module_open("slurm", err);

    if (!module)
        return NULL;
    driver = module_symbol(module, SLURM_DRIVER_SYMBOL, err);
    if (!driver)
        return NULL;
    if (driver->version != SLURM_DRIVER_VERSION ||
        driver->facts_size != sizeof(struct slurm_facts) ||
        driver->node_size != sizeof(struct slurm_node) ||
        driver->switch_size != sizeof(struct slurm_switch) ||
        driver->err_size != sizeof(struct err)) {
        err_set(err, "tasuki-slurm.so belongs to another version of tasuki: install both anew");
        return NULL;
    }
    return driver;
}

/* In the child: the facts in JSON, or what is wrong. */
static char *answer(void *context)
{
    const struct question *q = context;
    struct slurm_facts *facts = slurm_facts_new();
    struct err err = { 0 };
    int status = q->partition ? q->driver->partition(q->partition, facts, &err)
                              : q->driver->job(&q->job, facts, &err);
    json_t *json = status ? json_pack("{s:s}", "error", err.text) : slurm_facts_to_json(facts);

    return json ? json_dumps(json, JSON_COMPACT) : NULL;
}

/* libslurm says on stderr why it ended the process: "tasuki: fatal: …". */
static const char *plain_talk(const char *talk)
{
    const char *fatal = strstr(talk, "fatal: "), *error = strstr(talk, "error: ");

    return fatal ? fatal + 7 : error ? error + 7 : *talk ? talk : "it ended without a word";
}

static struct slurm_facts *from_answer(const struct apart *child, struct err *err)
{
    json_t *json = child->signal ? NULL : json_loads(child->answer, 0, NULL);
    const char *error = json_string_value(json_object_get(json, "error"));
    struct slurm_facts *facts = NULL;

    if (child->signal == SIGALRM)
        err_set(err, "Slurm does not answer: nothing came for %d seconds", PATIENCE);
    else if (child->signal)
        err_set(err, "libslurm ended by %s", strsignal(child->signal));
    else if (!json)
        err_set(err, "Slurm does not answer: %s", plain_talk(child->talk));
    else if (error)
        err_set(err, "%s", error);
    else
        facts = slurm_facts_from_json("Slurm", json, err);
    json_decref(json);
    return facts;
}

/* libslurm tries for a minute to open a file that is not there. */
static int check_configuration(struct err *err)
{
    const char *path = getenv("SLURM_CONF");

    if (!path || !*path || access(path, R_OK) == 0)
        return 0;
    return err_set(err, "SLURM_CONF=%s: %s", path, strerror(errno));
}

static struct slurm_facts *ask(struct question *question, struct err *err)
{
    struct slurm_facts *facts = NULL;
    struct apart child;

    question->driver = load_driver(err);
    if (!question->driver || check_configuration(err) ||
        apart_run(answer, question, PATIENCE, true, &child, err))
        return NULL;
    facts = from_answer(&child, err);
    apart_clear(&child);
    return facts;
}

struct slurm_facts *slurm_ask_job(const char *job, struct err *err)
{
    struct question question = { 0 };
    struct slurm_facts *facts = NULL;

    if (slurm_parse_job(job, &question.job, err))
        return NULL;
    facts = ask(&question, err);
    if (!facts) {
        err_prefix(err, "job %s", job);
        return NULL;
    }
    free(facts->job);
    facts->job = mem_strdup(job);
    return facts;
}

struct slurm_facts *slurm_ask_partition(const char *partition, struct err *err)
{
    struct question question = { .partition = partition };
    struct slurm_facts *facts = ask(&question, err);

    if (!facts)
        err_prefix(err, "%s%s", *partition ? "partition " : "default partition", partition);
    return facts;
}
