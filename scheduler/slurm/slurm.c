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

enum kind { ABOUT_JOB, ABOUT_PARTITION, HAS_NODE, START_AGAIN, SIGNAL_STEP };

struct question {
    enum kind kind;
    struct slurm_job_id job;
    const char *name;       /* of a partition, or a node */
    uint32_t step;
    int signal;
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

static json_t *facts_of(const struct question *q, struct err *err)
{
    struct slurm_facts *facts = slurm_facts_new();
    int status = q->kind == ABOUT_PARTITION ? q->driver->partition(q->name, facts, err)
                                            : q->driver->job(&q->job, facts, err);

    return status ? NULL : slurm_facts_to_json(facts);
}

static json_t *do_it(const struct question *q, struct err *err)
{
    struct err ignored = { 0 };
    bool is_so = true;
    int status;

    if (q->kind == HAS_NODE)
        status = q->driver->has_node(&q->job, q->name, &is_so, err);
    else if (q->kind == SIGNAL_STEP)
        status = q->driver->signal_step(&q->job, q->step, q->signal, err);
    else if ((status = q->driver->requeue(&q->job, err)) && err->code == EXIT_USAGE)
        q->driver->end_job(&q->job, &ignored);
    return status ? NULL : json_pack("{s:b}", "is_so", (int)is_so);
}

/* In the child: what is asked for in JSON, or what is wrong. */
static char *answer(void *context)
{
    const struct question *q = context;
    struct err err = { 0 };
    json_t *json = q->kind <= ABOUT_PARTITION ? facts_of(q, &err) : do_it(q, &err);

    if (err.code)
        json = json_pack("{s:s, s:i}", "error", err.text, "number", err.number);
    return json ? json_dumps(json, JSON_COMPACT) : NULL;
}

/* libslurm says on stderr why it ended the process: "tasuki: fatal: …". */
static const char *plain_talk(const char *talk)
{
    const char *fatal = strstr(talk, "fatal: "), *error = strstr(talk, "error: ");

    return fatal ? fatal + 7 : error ? error + 7 : *talk ? talk : "it ended without a word";
}

static json_t *from_answer(const struct apart *child, struct err *err)
{
    json_t *json = child->signal ? NULL : json_loads(child->answer, 0, NULL);
    const char *error = json_string_value(json_object_get(json, "error"));
    int number = (int)json_integer_value(json_object_get(json, "number"));

    if (child->signal == SIGALRM) {
        err_set(err, "Slurm does not answer: nothing came for %d seconds", PATIENCE);
        number = SLURM_AWAY;
    } else if (child->signal)
        err_set(err, "libslurm ended by %s", strsignal(child->signal));
    else if (!json)
        err_set(err, "Slurm does not answer: %s", plain_talk(child->talk));
    else if (error)
        err_set(err, "%s", error);
    err->number = number;
    if (!error)
        return json;
    json_decref(json);
    return NULL;
}

/* libslurm tries for a minute to open a file that is not there. */
static int check_configuration(struct err *err)
{
    const char *path = getenv("SLURM_CONF");

    if (!path || !*path || access(path, R_OK) == 0)
        return 0;
    return err_set(err, "SLURM_CONF=%s: %s", path, strerror(errno));
}

static json_t *ask(struct question *question, struct err *err)
{
    json_t *json;
    struct apart child;

    question->driver = load_driver(err);
    if (!question->driver)
        err->number = SLURM_ABSENT;
    if (!question->driver || check_configuration(err) ||
        apart_run(answer, question, PATIENCE, true, &child, err))
        return NULL;
    json = from_answer(&child, err);
    apart_clear(&child);
    return json;
}

static struct slurm_facts *ask_facts(struct question *question, struct err *err)
{
    json_t *json = ask(question, err);
    struct slurm_facts *facts = json ? slurm_facts_from_json("Slurm", json, err) : NULL;

    json_decref(json);
    return facts;
}

struct slurm_facts *slurm_ask_job(const char *job, struct err *err)
{
    struct question question = { .kind = ABOUT_JOB };
    struct slurm_facts *facts = NULL;

    if (slurm_parse_job(job, &question.job, err))
        return NULL;
    facts = ask_facts(&question, err);
    if (!facts) {
        err_prefix(err, "job %s", job);
        return NULL;
    }
    free(facts->job);
    facts->job = mem_strdup(job);
    return facts;
}

bool slurm_no_job(const struct err *err)
{
    return err->number == SLURM_NO_JOB;
}

bool slurm_is_away(const struct err *err)
{
    return err->number == SLURM_AWAY;
}

bool slurm_is_absent(const struct err *err)
{
    return err->number == SLURM_ABSENT;
}

struct slurm_facts *slurm_ask_partition(const char *partition, struct err *err)
{
    struct question question = { .kind = ABOUT_PARTITION, .name = partition };
    struct slurm_facts *facts = ask_facts(&question, err);

    if (!facts)
        err_prefix(err, "%s%s", *partition ? "partition " : "default partition", partition);
    return facts;
}

/* 1, 0, or -1 with 'err'. */
static int act(struct question *question, const char *job, struct err *err)
{
    json_t *json;
    int is_so = -1;

    if (slurm_parse_job(job, &question->job, err))
        return -1;
    json = ask(question, err);
    if (json)
        is_so = json_is_true(json_object_get(json, "is_so"));
    else
        err_prefix(err, "job %s", job);
    json_decref(json);
    return is_so;
}

int slurm_has_node(const char *job, const char *node, bool *has, struct err *err)
{
    struct question question = { .kind = HAS_NODE, .name = node };
    int is_so = act(&question, job, err);

    if (is_so < 0)
        return -1;
    *has = is_so;
    return 0;
}

int slurm_start_again(const char *job, struct err *err)
{
    struct question question = { .kind = START_AGAIN };

    return act(&question, job, err) < 0 ? -1 : 0;
}

int slurm_signal_step(const char *job, const char *step, int number, struct err *err)
{
    struct question question = { .kind = SIGNAL_STEP, .signal = number };

    if (parse_number(&step, UINT32_MAX, &question.step) || *step)
        return err_set(err, "\"%s\" is no number of a step", step);
    return act(&question, job, err) < 0 ? -1 : 0;
}
