/* SPDX-License-Identifier: MIT */
#include "train/train.h"

#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "train/fate.h"
#include "train/session.h"
#include "train/standstill.h"

/* The last line of a log whose run had no end. */
static void log_failure(struct session *s, const struct err *err)
{
    if (s->journal && err->text[0])
        session_log(s, json_pack("{s:s, s:s, s:o*, s:o*}", "event", "failed", "error",
                                 json_is_text(err->text) ? err->text : "not UTF-8", "ranks",
                                 standstill_to_json(s->comm), "usage",
                                 session_usage_alone(s)));
}

/* Another rank has failed by itself, which says so. */
static void log_other(void *data, const char *text)
{
    struct session *s = data;
    struct err err = { .code = EXIT_FAILED };

    snprintf(err.text, sizeof(err.text), "%s", text);
    log_failure(s, &err);
    journal_close(s->journal);
    s->journal = NULL;
}

int train_run(const struct train_settings *settings, const struct topo_node *node,
              struct comm *comm, double *kwh, struct err *err)
{
    struct session session;
    int code = -1;

    if (session_open(&session, settings, node, comm, err) == 0)
        code = settings->dry_run ? EXIT_OK : session_loop(&session, err);
    if (code < 0 && !session.agreed && comm_size(comm) > 1) {
        session_end_metrics(&session);
        comm_tell(comm, log_other, &session);
        nccl_abort(session.nccl);
        comm_follow(comm, err);
        session_unlock(&session);
        log_failure(&session, err);
        fate_tell(comm, (int)err->code, false, NAN, err->text);
        log_say(LOG_ERROR, "%s", err->text);
        standstill_say(comm);
        comm_abort(comm, (int)err->code);
    }
    if (code < 0)
        log_failure(&session, err);
    session_end_metrics(&session);
    journal_close(session.journal);
    *kwh = session.used.told ? session.used.kwh : NAN;
    session_close(&session);
    return code < 0 ? (int)err->code : code;
}
