/* SPDX-License-Identifier: MIT */
#include "train/board.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

int board_init(struct board *board, struct comm *comm, struct err *err)
{
    int n = comm_size(comm), *ranks;

    *board = (struct board){ 0 };
    if (n < 2)
        return 0;
    ranks = mem_new((size_t)n, sizeof(int));
    for (int r = 0; r < n; r++)
        ranks[r] = r;
    board->group = comm_group_new(comm, n, ranks, err);
    free(ranks);
    if (!board->group)
        return -1;
    for (int i = 0; i < 2; i++)
        board->requests[i] = comm_request_new(comm);
    return 0;
}

void board_clear(struct board *board)
{
    for (int i = 0; i < 2; i++)
        if (board->requests[i])
            comm_request_free(board->requests[i]);
    if (board->group)
        comm_group_free(board->group);
    *board = (struct board){ 0 };
}

int board_post(struct board *board, const double entries[BOARD_COUNT], struct err *err)
{
    int i = board->turn;

    memcpy(board->sums[i], entries, sizeof(board->sums[i]));
    board->turn = 1 - i;
    board->unread++;
    if (!board->group)
        return 0;
    return comm_allreduce(board->group, board->sums[i], BOARD_COUNT, DTYPE_F64, true,
                          board->requests[i], err);
}

int board_read(struct board *board, double entries[BOARD_COUNT], struct err *err)
{
    /* With one post unread it is the last one, with two the one before. */
    int i = board->unread == 2 ? board->turn : 1 - board->turn;

    if (board->group && comm_wait(board->requests[i], err) < 0)
        return -1;
    board->unread--;
    memcpy(entries, board->sums[i], sizeof(board->sums[i]));
    return 0;
}
