/* SPDX-License-Identifier: MIT */
#include "train/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/module.h"
#include "kernels/cuda/driver.h"
#include "topology/node_read.h"
#include "train/gpu_plan.h"
#include "train/wire.h"

#define TAG 0

_Static_assert(WIRE_SLOTS <= CUDA_SLOTS, "a slot of a wire is one of the module");

struct gpu {
    const struct cuda_driver *driver;
    struct comm *comm;
    struct cuda_gpu *cuda;
    int *places;                /* of each rank among those that are connected */
    struct comm_request *requests[WIRE_SLOTS];
};

static const struct cuda_driver *load_driver(struct err *err)
{
    void *module = module_open("cuda", err);
    const struct cuda_driver *driver =
        module ? module_symbol(module, CUDA_DRIVER_SYMBOL, err) : NULL;

    if (driver && (driver->version != CUDA_DRIVER_VERSION ||
                   driver->err_size != sizeof(struct err) ||
                   driver->gpu_size != sizeof(struct cuda_gpu))) {
        err_set(err, "tasuki-cuda.so belongs to another version of tasuki: install both anew");
        return NULL;
    }
    return driver;
}

/* What CUDA shows this process, malloc'ed; NULL where there is nothing, or no module. */
static struct cuda_address *list_shown(int *n)
{
    struct err ignored = { 0 };
    const struct cuda_driver *driver = load_driver(&ignored);
    struct cuda_address *list = NULL;

    *n = 0;
    return driver && driver->list(n, &list, &ignored) == 0 ? list : NULL;
}

int gpu_count(void)
{
    int n;

    free(list_shown(&n));
    return n;
}

int gpu_architecture(const char *address)
{
    int n, architecture = 0;
    struct cuda_address *list = list_shown(&n);

    for (int i = 0; i < n && !architecture; i++)
        if (!address || strcasecmp(list[i].text, address) == 0)
            architecture = list[i].architecture;
    free(list);
    return architecture;
}

/* What a rank tells the others: "" where it has nothing to do with GPUs, "!REASON", or its NCCL
 * and its GPUs, a line each: address, architecture and what else a plan may call it.
 */
static char *look(const struct topo_node *node, struct err *err)
{
    const struct cuda_driver *driver = load_driver(err);
    struct cuda_address *list = NULL;
    char version[32] = "", *text, *more;
    int n;

    if (!driver || driver->list(&n, &list, err) ||
        (driver->nccl && driver->nccl(version, err))) {
        free(list);
        return mem_printf("!%s", err->text);
    }
    text = mem_strdup(version);
    for (int i = 0; i < n; i++) {
        char address[32];
        struct gpu_names names;

        if (topo_pci_address(list[i].text, address))
            continue;
        names = gpu_names(node, address);
        more = mem_printf("%s\n%s %d %d %s", text, address, list[i].architecture, names.index,
                          names.uuid);
        free(text);
        text = more;
    }
    free(list);
    return text;
}

/* The i-th line after the first, from 0; NULL: there are not so many. */
static const char *line_of(const char *text, int i)
{
    for (; text && i >= 0; i--) {
        text = strchr(text, '\n');
        text += text != NULL;
    }
    return text;
}

static bool read_gpu(const char *text, int i, struct gpu_choice *gpu)
{
    const char *line = line_of(text, i);

    return line && sscanf(line, "%31s %d", gpu->address, &gpu->architecture) == 2;
}

static bool read_names(const char *text, int i, struct gpu_names *names)
{
    const char *line = line_of(text, i);

    return line && sscanf(line, "%31s %*d %d %63s", names->address, &names->index,
                          names->uuid) == 3;
}

/* By how many ranks of the node of 'rank'. */
static int count_takers(const struct comm *comm, const struct gpu_choices *choices, int rank,
                        const char *address)
{
    int n = 0;

    for (int r = 0; r < choices->n; r++)
        n += r != rank && strcmp(choices->list[r].address, address) == 0 &&
             comm_same_host(comm, r, rank);
    return n;
}

/* What ranks tell each other of GPUs, each a string to be freed; NULL where none is wanted. */
static int tell(struct comm *comm, bool wanted, const struct topo_node *node, char **texts,
                struct err *err)
{
    int n = comm_size(comm), status;
    const void **parts = mem_new((size_t)n, sizeof(*parts));
    size_t *sizes = mem_new((size_t)n, sizeof(*sizes));
    struct err why = { 0 };
    char *text = wanted ? look(node, &why) : mem_strdup("");
    void *block = NULL;

    status = comm_exchange(comm, text, wanted ? strlen(text) + 1 : 0, &block, parts, sizes, err);
    for (int r = 0; r < n && !status; r++)
        if (sizes[r] > 0)
            texts[r] = mem_printf("%.*s", (int)sizes[r], (const char *)parts[r]);
    free(text);
    free(block);
    free(parts);
    free(sizes);
    return status;
}

static bool is_shown(const char *text, const char *address)
{
    struct gpu_choice gpu;

    for (int i = 0; read_gpu(text, i, &gpu); i++)
        if (strcmp(gpu.address, address) == 0)
            return true;
    return false;
}

/* Of the processes on the node of 'first' that are shown this GPU, from there on: the one that has
 * the fewest.
 */
static int least_laden(const struct comm *comm, char *const *texts, const int *gpus, int first,
                       const char *address)
{
    int best = first;

    for (int p = first; p < comm_size(comm); p++)
        if (comm_same_host(comm, first, p) && is_shown(texts[p], address) && gpus[p] < gpus[best])
            best = p;
    return best;
}

static bool was_shown(const struct comm *comm, char *const *texts, int process,
                      const char *address)
{
    for (int p = 0; p < process; p++)
        if (comm_same_host(comm, p, process) && is_shown(texts[p], address))
            return true;
    return false;
}

int gpu_share(struct comm *processes, bool wanted, int *share, struct err *err)
{
    int n = comm_size(processes), *gpus = mem_new((size_t)n, sizeof(*gpus));
    char **texts = mem_new((size_t)n, sizeof(*texts));
    struct gpu_choice gpu;
    int status = tell(processes, wanted, NULL, texts, err);

    for (int p = 0; p < n && !status; p++)
        for (int i = 0; read_gpu(texts[p], i, &gpu); i++)
            if (!was_shown(processes, texts, p, gpu.address))
                gpus[least_laden(processes, texts, gpus, p, gpu.address)]++;
    if (!status)
        *share = gpus[comm_rank(processes)];
    for (int p = 0; p < n; p++)
        free(texts[p]);
    free(texts);
    free(gpus);
    return status;
}

/* Of those that the plan names for more ranks than have taken it. */
static void choose_planned(const struct comm *comm, const struct gpu_plan *plan,
                           struct gpu_choices *choices, int rank, const char *text)
{
    struct gpu_names gpu;

    for (int i = 0; read_names(text, i, &gpu); i++)
        if (count_takers(comm, choices, rank, gpu.address) <
            gpu_plan_count(plan, comm_host(comm, rank), &gpu)) {
            read_gpu(text, i, &choices->list[rank]);
            return;
        }
}

static void choose(const struct comm *comm, struct gpu_choices *choices, int rank,
                   const char *text)
{
    struct gpu_choice *own = &choices->list[rank];
    int before = 0, n = 0;

    for (; read_gpu(text, n, own); n++)
        if (count_takers(comm, choices, rank, own->address) == 0)
            return;
    for (int r = 0; r < rank; r++)
        before += choices->list[r].address[0] &&
                  comm_same_host(comm, r, rank);
    if (n > 0)
        read_gpu(text, before % n, own);
    else
        own->why = mem_strdup("CUDA shows it none");
    own->unseen = n == 0;
}

/* The NCCL of all that have a GPU. */
static void agree_on_nccl(struct gpu_choices *choices, const char *text, bool *any)
{
    char version[32];

    snprintf(version, sizeof(version), "%.*s", (int)strcspn(text, "\n"), text);
    if (!*any)
        snprintf(choices->nccl, sizeof(choices->nccl), "%s", version);
    else if (strcmp(choices->nccl, version) != 0)
        choices->nccl[0] = '\0';
    *any = true;
}

static void choose_all(const struct comm *comm, const struct gpu_plan *plan,
                       struct gpu_choices *choices, char *const *texts)
{
    bool any = false;

    for (int r = 0; plan && r < choices->n; r++)
        if (texts[r] && texts[r][0] != '!')
            choose_planned(comm, plan, choices, r, texts[r]);
    for (int r = 0; r < choices->n; r++) {
        if (texts[r] && texts[r][0] == '!')
            choices->list[r].why = mem_strdup(texts[r] + 1);
        else if (texts[r] && !choices->list[r].address[0])
            choose(comm, choices, r, texts[r]);
        if (choices->list[r].address[0])
            agree_on_nccl(choices, texts[r], &any);
    }
}

int gpu_choose(struct comm *comm, bool wanted, const struct gpu_plan *plan,
               struct gpu_choices *choices, struct err *err)
{
    int n = comm_size(comm);
    char **texts = mem_new((size_t)n, sizeof(*texts));
    int status = tell(comm, wanted, plan ? plan->node : NULL, texts, err);

    if (status == 0) {
        *choices = (struct gpu_choices){ n, mem_new((size_t)n, sizeof(*choices->list)), "" };
        choose_all(comm, plan, choices, texts);
    }
    for (int r = 0; r < n; r++)
        free(texts[r]);
    free(texts);
    return status;
}

void gpu_choices_clear(struct gpu_choices *choices)
{
    for (int i = 0; i < choices->n; i++)
        free(choices->list[i].why);
    free(choices->list);
}

struct gpu *gpu_open(struct comm *comm, const char *address, size_t bytes, struct err *err)
{
    const struct cuda_driver *driver = load_driver(err);
    struct cuda_gpu *cuda = driver ? driver->open(address, bytes, err) : NULL;
    struct gpu *gpu;

    if (!cuda)
        return NULL;
    gpu = mem_new(1, sizeof(*gpu));
    *gpu = (struct gpu){ .driver = driver, .comm = comm, .cuda = cuda };
    gpu->places = mem_new((size_t)comm_size(comm), sizeof(*gpu->places));
    for (int i = 0; i < WIRE_SLOTS; i++)
        gpu->requests[i] = comm_request_new(comm);
    return gpu;
}

void gpu_close(struct gpu *gpu)
{
    if (!gpu)
        return;
    for (int i = 0; i < WIRE_SLOTS; i++)
        comm_request_free(gpu->requests[i]);
    gpu->driver->close(gpu->cuda);
    free(gpu->places);
    free(gpu);
}

static int wait_ready(struct gpu *gpu, struct err *err)
{
    bool ready = false;

    while (!ready)
        if (gpu->driver->ready(gpu->cuda, &ready, err) || comm_asked(gpu->comm, ready, err))
            return -1;
    return 0;
}

static int wait_slot(struct gpu *gpu, int slot, struct err *err)
{
    bool done = false;

    while (!done)
        if (gpu->driver->done(gpu->cuda, slot, &done, err) || comm_asked(gpu->comm, done, err))
            return -1;
    return 0;
}

int gpu_connect(struct comm *comm, struct gpu *gpu, int n, const int *ranks, struct err *err)
{
    int me = comm_rank(comm), place = 0, status;
    char first[CUDA_ID_SIZE];
    void *id = first;
    size_t size = sizeof(first);

    if (me == ranks[0] && gpu->driver->id(first, err))
        return -1;
    if (comm_broadcast(comm, ranks[0], &id, &size, err))
        return -1;
    status = size == sizeof(first) ? 0 : err_set(err, "NCCL: an id of %zu bytes", size);
    for (int i = 0; i < n && gpu; i++) {
        gpu->places[ranks[i]] = i;
        place = ranks[i] == me ? i : place;
    }
    if (gpu && !status)
        status = gpu->driver->connect(gpu->cuda, n, place, id, err) || wait_ready(gpu, err);
    if (me != ranks[0])
        free(id);
    return status ? -1 : 0;
}

int gpu_leave(struct gpu *gpu, struct err *err)
{
    return gpu->driver->leave(gpu->cuda, err) || wait_ready(gpu, err) ? -1 : 0;
}

struct gpu_wire {
    struct wire base;
    struct gpu *gpu;
    struct {
        char *data;             /* where what the host receives is to go; NULL: it sends */
        size_t bytes;
    } slots[WIRE_SLOTS];
};

static int post_nccl(struct wire *base, int slot, int peer, bool send, char *data, size_t bytes,
                     struct err *err)
{
    struct gpu *gpu = ((struct gpu_wire *)base)->gpu;
    bool launched = false;

    if (gpu->driver->post(gpu->cuda, send, data, bytes, gpu->places[peer], err))
        return -1;
    while (!launched)
        if (gpu->driver->launched(gpu->cuda, slot, &launched, err) ||
            comm_asked(gpu->comm, launched, err))
            return -1;
    return 0;
}

static int wait_nccl(struct wire *base, int slot, struct err *err)
{
    return wait_slot(((struct gpu_wire *)base)->gpu, slot, err);
}

/* The pinned pool is as large as that of the GPU: a message has the same place in both. */
static char *beside(const struct gpu *gpu, const char *data)
{
    return gpu->cuda->host + (data - gpu->cuda->device);
}

static int post_hosts(struct wire *base, int slot, int peer, bool send, char *data,
                      size_t bytes, struct err *err)
{
    struct gpu_wire *wire = (struct gpu_wire *)base;
    struct gpu *gpu = wire->gpu;
    char *pinned = beside(gpu, data);

    wire->slots[slot].data = send ? NULL : data;
    wire->slots[slot].bytes = bytes;
    if (!send)
        return comm_receive(gpu->comm, pinned, bytes, peer, TAG, gpu->requests[slot], err);
    if (gpu->driver->copy(gpu->cuda, slot, pinned, data, bytes, err) ||
        wait_slot(gpu, slot, err))
        return -1;
    return comm_send(gpu->comm, pinned, bytes, peer, TAG, gpu->requests[slot], err);
}

static int wait_hosts(struct wire *base, int slot, struct err *err)
{
    struct gpu_wire *wire = (struct gpu_wire *)base;
    struct gpu *gpu = wire->gpu;
    char *data = wire->slots[slot].data;

    if (comm_wait(gpu->requests[slot], err))
        return -1;
    if (!data)
        return 0;
    if (gpu->driver->copy(gpu->cuda, slot, data, beside(gpu, data), wire->slots[slot].bytes,
                          err))
        return -1;
    return wait_slot(gpu, slot, err);
}

static void free_gpu_wire(struct wire *base)
{
    free(base);
}

static struct gpu_wire *new_gpu_wire(struct gpu *gpu)
{
    struct gpu_wire *wire = mem_new(1, sizeof(*wire));

    wire->base = (struct wire){ .size = gpu->cuda->bytes, .pool = gpu->cuda->device,
                                .free = free_gpu_wire };
    wire->gpu = gpu;
    return wire;
}

struct wire *gpu_wire_nccl(struct gpu *gpu)
{
    struct gpu_wire *wire = new_gpu_wire(gpu);

    wire->base.post = post_nccl;
    wire->base.wait = wait_nccl;
    return &wire->base;
}

struct wire *gpu_wire_hosts(struct gpu *gpu)
{
    struct gpu_wire *wire = new_gpu_wire(gpu);

    wire->base.post = post_hosts;
    wire->base.wait = wait_hosts;
    return &wire->base;
}
