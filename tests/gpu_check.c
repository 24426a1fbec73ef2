/* SPDX-License-Identifier: MIT */
/* Do bytes get from GPU to GPU as they are? Two ranks under tests/fake_cuda.c, whose GPUs' memory
 * the program may read and write: gpu_check. Messages of several sizes, as many as there are
 * slots, there and back, by NCCL where the ranks have different GPUs and by way of the hosts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "comm/comm.h"
#include "train/gpu.h"
#include "train/wire.h"

#define ROOM ((size_t)2 << 20)

static struct comm *comm;
static struct err err;

static void must(int status, const char *what)
{
    if (!status)
        return;
    if (comm)
        comm_follow(comm, &err);
    fprintf(stderr, "gpu_check: %s: %s\n", what, err.text);
    exit(EXIT_FAILED);
}

static char pattern(int from, int slot, size_t i)
{
    return (char)(i * 7 + i / 251 + (size_t)(slot * 31 + from * 101 + 1));
}

/* All slots at once; the receiver finds what was sent, and nothing beside it. */
static void send_all(struct wire *wire, int from, size_t bytes)
{
    int me = comm_rank(comm), wrong = 0;

    memset(wire->pool, 0x5a, wire->size);
    for (int slot = 0; slot < WIRE_SLOTS; slot++) {
        char *data = wire->pool + (size_t)slot * ROOM;

        for (size_t i = 0; i < bytes && me == from; i++)
            data[i] = pattern(from, slot, i);
        must(wire->post(wire, slot, 1 - me, me == from, data, bytes, &err), "post");
    }
    for (int slot = 0; slot < WIRE_SLOTS; slot++) {
        const char *data = wire->pool + (size_t)slot * ROOM;

        must(wire->wait(wire, slot, &err), "wait");
        for (size_t i = 0; i < bytes; i++)
            wrong += data[i] != pattern(from, slot, i);
        wrong += data[bytes] != 0x5a;
    }
    must(comm_agree(comm, &err, wrong && err_set(&err, "%d bytes are wrong", wrong)), "bytes");
}

static void check(struct wire *wire, const char *name)
{
    static const size_t sizes[] = { 1, 8, 1000, 65537, ROOM - 1 };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int from = 0; from < 2; from++)
            send_all(wire, from, sizes[i]);
    if (comm_rank(comm) == 0)
        printf("%s: ok\n", name);
    wire_free(wire);
}

int main(void)
{
    const int ranks[] = { 0, 1 };
    struct gpu_choices choices;
    struct launch launch;
    struct gpu *gpu;

    must(launch_detect(&launch, &err), "launch");
    comm = comm_open(&launch, &err);
    must(!comm || comm_size(comm) != 2, "two ranks are needed");
    must(gpu_choose(comm, true, NULL, &choices, &err), "choice");
    gpu = gpu_open(comm, choices.list[comm_rank(comm)].address, WIRE_SLOTS * ROOM, &err);
    must(comm_agree(comm, &err, !gpu), "GPU");
    if (choices.nccl[0] && strcmp(choices.list[0].address, choices.list[1].address) != 0) {
        must(gpu_connect(comm, gpu, 2, ranks, &err), "NCCL");
        check(gpu_wire_nccl(gpu), "NCCL");
        must(gpu_leave(gpu, &err), "NCCL");
    }
    check(gpu_wire_hosts(gpu), "hosts");
    gpu_close(gpu);
    gpu_choices_clear(&choices);
    comm_close(comm);
    return EXIT_OK;
}
