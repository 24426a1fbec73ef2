/* SPDX-License-Identifier: MIT */
#include "train/train.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "train/session.h"

/* The last line of a log whose run had no end. */
static void log_failure(struct session *s, const struct err *err)
{
    if (s->journal && err->text[0])
        session_log(s, json_pack("{s:s, s:s}", "event", "failed", "error",
                                 json_is_text(err->text) ? err->text : "not UTF-8"));
}

int train_run(const struct train_settings *settings, const struct topo_node *node,
              struct comm *comm, struct err *err)
{
    struct session session;
    int code = -1;

    if (session_open(&session, settings, node, comm, err) == 0)
        code = settings->dry_run ? EXIT_OK : session_loop(&session, err);
    if (code < 0 && !session.agreed && comm_size(comm) > 1) {
        session_end_metrics(&session);
        nccl_abort(session.nccl);
        comm_follow(comm, err);
        log_failure(&session, err);
        log_say(LOG_ERROR, "%s", err->text);
        comm_abort(comm, (int)err->code);
    }
    if (code < 0)
        log_failure(&session, err);
    session_end_metrics(&session);
    if (journal_close(session.journal, code < 0 ? NULL : err) < 0 && code == EXIT_OK)
        code = EXIT_FAILED;
    session_close(&session);
    return code < 0 ? (int)err->code : code;
}
