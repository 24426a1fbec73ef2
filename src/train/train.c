/* SPDX-License-Identifier: MIT */
#include "train/train.h"

#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/oom.h"
#include "topology/report.h"
#include "train/fate.h"
#include "train/session.h"
#include "train/standstill.h"

/* The last line of a log whose run had no end. */
static void log_failure(struct session *s, const struct err *err)
{
    if (s->journal && err->text[0])
        session_log(s, json_pack("{s:s, s:s, s:o*, s:o*}", "event", "failed", "error",
                                 json_is_text(err->text) ? err->text : "not UTF-8", "ranks",
                                 standstill_to_json(comm_standstill(s->comm), s->size), "usage",
                                 session_usage_alone(s)));
}

/* Bytes that the plan foresees for a rank, in all of its stages. */
static double planned_memory(const struct session *s, int rank)
{
    double bytes = 0;

    for (int stage = 0; stage < s->placement.n_stages; stage++) {
        int n;
        const int *ranks = placement_stage(&s->placement, stage, &n);

        for (int i = 0; i < n; i++)
            bytes += ranks[i] == rank ? s->plan->stages[stage].memory : 0;
    }
    return bytes;
}

/* A rank has died on a node that was short of memory. */
static void advise(const struct session *s, struct err *err)
{
    int rank = comm_starved(s->comm);
    char mine[24], sum[24];
    double all = 0;

    if (rank < 0)
        return;
    for (int r = 0; r < s->size; r++)
        all += comm_same_host(s->comm, r, rank) ? planned_memory(s, r) : 0;
    /* Else it is the memory of GPUs, or not known. */
    if (all > 0 && !s->gpu[0])
        err_hint(err, "the plan foresees %s for rank %d, and %s for all ranks there, libraries and "
                 "files not counted", report_bytes(planned_memory(s, rank), mine), rank,
                 report_bytes(all, sum));
    err_hint(err, OOM_ADVICE "%s", s->gpu[0] ? "" : ", or plan for less (--memory)");
}

/* Another rank has failed by itself, which says so. */
static void log_other(void *data, const char *text)
{
    struct session *s = data;
    struct err err = { .code = EXIT_FAILED };

    comm_set_words(s->comm, NULL);
    snprintf(err.text, sizeof(err.text), "%s", text);
    log_failure(s, &err);
    journal_close(s->journal);
    s->journal = NULL;
}

/* By another thread than the main one, which does not come to it. */
static void say_last(void *data, const char *text)
{
    struct session *s = data;

    log_set_rank(s->rank);
    log_say(LOG_ERROR, "%s", text);
    fate_tell(s->comm, EXIT_FAILED, false, NAN, text);
    if (s->journal)
        session_log(s, json_pack("{s:s, s:s}", "event", "failed", "error",
                                 json_is_text(text) ? text : "not UTF-8"));
}

/* So is this. */
static void say_standstill(void *data, double seconds, const struct sighting *ranks)
{
    struct session *s = data;

    log_set_rank(s->rank);
    if (ranks)
        log_warning("nothing has moved for %.0f seconds (--warn-after); where the ranks are:",
                    seconds);
    else
        log_warning("it moves again, after %.0f seconds", seconds);
    standstill_say(ranks, s->size, LOG_WARNING);
    session_log(s, json_pack("{s:s, s:f, s:o*}", "event", ranks ? "standstill" : "moves",
                             "seconds", seconds, "ranks", standstill_to_json(ranks, s->size)));
}

int train_run(const struct train_settings *settings, const struct topo_node *node,
              struct comm *comm, double *kwh, struct err *err)
{
    struct session session = { .comm = comm, .rank = comm_rank(comm), .size = comm_size(comm) };
    struct comm_words words = { .last = say_last, .data = &session };
    int code = -1;

    comm_set_words(comm, &words);
    if (session_open(&session, settings, node, comm, err) == 0) {
        words.standstill = say_standstill;
        comm_set_words(comm, &words);
        code = settings->dry_run ? EXIT_OK : session_loop(&session, err);
    }
    if (code < 0 && !session.agreed && comm_size(comm) > 1) {
        session_end_metrics(&session);
        comm_tell(comm, log_other, &session);
        nccl_abort(session.nccl);
        comm_follow(comm, err);
        comm_set_words(comm, NULL);
        advise(&session, err);
        session_unlock(&session);
        log_failure(&session, err);
        fate_tell(comm, (int)err->code, false, NAN, err->text);
        log_say(LOG_ERROR, "%s", err->text);
        standstill_say(comm_standstill(comm), comm_size(comm), LOG_ERROR);
        comm_abort(comm, (int)err->code);
    }
    comm_set_words(comm, NULL);
    if (code < 0)
        log_failure(&session, err);
    session_end_metrics(&session);
    journal_close(session.journal);
    *kwh = session.used.told ? session.used.kwh : NAN;
    session_close(&session);
    return code < 0 ? (int)err->code : code;
}
