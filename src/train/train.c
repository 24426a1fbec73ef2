/* SPDX-License-Identifier: MIT */
#include "train/train.h"

#include "base/err.h"
#include "base/log.h"
#include "train/session.h"

int train_run(const struct train_settings *settings, const struct topo_node *node,
              struct comm *comm, struct err *err)
{
    struct session session;
    int code = -1;

    if (session_open(&session, settings, node, comm, err) == 0)
        code = settings->dry_run ? EXIT_OK : session_loop(&session, err);
    if (code < 0 && !session.agreed && comm_size(comm) > 1) {
        comm_follow(comm, err);
        log_say(LOG_ERROR, "%s", err->text);
        comm_abort(comm, (int)err->code);
    }
    if (journal_close(session.journal, code < 0 ? NULL : err) < 0 && code == EXIT_OK)
        code = EXIT_FAILED;
    session_close(&session);
    return code < 0 ? (int)err->code : code;
}
