/* SPDX-License-Identifier: MIT */
/* What executor_setup.c makes and executor.c runs. */
#ifndef TASUKI_TRAIN_EXECUTOR_PRIVATE_H
#define TASUKI_TRAIN_EXECUTOR_PRIVATE_H

#include "train/executor.h"
#include "train/lanes.h"
#include "train/passage.h"
#include "train/reduce.h"
#include "train/replay.h"
#include "train/stamps.h"
#include "train/tape.h"
#include "train/update.h"

enum tape_kind { TAPE_P, TAPE_F, TAPE_AGAIN, TAPE_B, TAPE_W, TAPE_BW, TAPE_COUNT };

struct executor {
    struct executor_options options;
    const struct compiled *compiled;
    const struct backend *backend;
    const struct instruction_list *list;    /* of the rank */
    int chunk;                          /* of it that this is */
    struct lanes lanes;
    struct stream *stream;              /* of these, the one that computes */
    struct stamps stamps;               /* of what is in them, for --trace */
    struct store store;
    struct step_state *states;          /* [versions * slots], as the tapes have them: the device's */
    struct step_state *new_states;      /* [versions * micro-batches], on their way there */
    bool scratch[2];                    /* does what F (0) or B (1) receives go there? */
    struct tape tapes[TAPE_COUNT];
    struct replay replays[TAPE_COUNT];  /* of the tapes that instructions run */
    struct routes routes;
    struct passage *passages;           /* [routes.n] */
    int *forward_micros, *backward_micros;  /* orders in which receives are used */
    struct reduce reduce;
    struct update update;
    struct event *fed;                  /* inputs are copied; NULL: they always are */
    struct event *scored[SCHEDULE_VERSIONS];    /* and so are the scalars of a batch; */
    struct event *summed;               /* and squares of gradients */
    struct prefetch *lender;            /* of inputs that may still be copied; NULL: of none */
    char *staging;                      /* one input of one share */
    char *scalars;                      /* [versions][micro-batches]: loss and correct */
    char *sent;                         /* [versions]: divisor and factor, on their way there */
    bool has_loss, has_correct;
    int last[TAPE_COUNT];               /* index of the last instruction that runs it */
    bool started[TAPE_COUNT];           /* has a backward tape run in this step? */
    double factors[SCHEDULE_VERSIONS];  /* of the loss; 0: as it is in the graph */
    bool begun[SCHEDULE_VERSIONS];      /* has a forward of the batch with that version? */
    int turn;                           /* which passage is tested next */
};

static inline int64_t micro_batches(const struct executor *e)
{
    return e->options.plan->micro_batches;
}

static inline enum tape_kind tape_of(enum instruction_kind kind)
{
    switch (kind) {
    case INSTRUCTION_F: return TAPE_F;
    case INSTRUCTION_B: return TAPE_B;
    case INSTRUCTION_W: return TAPE_W;
    default: return TAPE_BW;
    }
}

static inline bool computes(enum instruction_kind kind)
{
    return kind == INSTRUCTION_F || kind == INSTRUCTION_B || kind == INSTRUCTION_W ||
           kind == INSTRUCTION_BW;
}

#endif
