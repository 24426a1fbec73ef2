/* SPDX-License-Identifier: MIT */
/* Who touches which memory when, as far as streams, events and the host's waiting order it.
 *
 * With TASUKI_FAKE_WATCH, beside TASUKI_FAKE_STRICT, each stream has a vector clock: what of all
 * streams has happened before what it is handed next. Events carry it to who waits for them, and
 * the host, which counts as a stream, hands on what it has waited for. Four bytes of memory at a
 * time remember who wrote and read them last: two accesses of which one writes and that nothing
 * orders are an error, whatever order they happened to be done in. So is reading what nobody wrote
 * since it was allocated, or since the program said that it is of no use any more; so is reading what
 * it said is to be written anew, where that does not write it; so is touching what was freed.
 *
 * Of a process with several ranks fake_threads.c tells what its threads order: then each that touches
 * memory counts as a stream, too, and what one copies from memory of another is a touch.
 *
 * What kernels touch is told by the compiler, which calls __tsan_read4() and the like for each
 * access of what is built with -fsanitize=thread; the functions here take ThreadSanitizer's place.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake_private.h"

/* OWED: defined, for who writes it anew alone, some of it at least. */
enum { UNDEFINED, DEFINED, OWED, FREED };

/* Times are stream << 24 | tick; 0: never. */
struct cell {
    uint32_t wrote, read[2], state;
};

static struct {
    char *start;
    size_t size;
    struct cell *cells;
} areas[2];

/* The host counts as one, or where fake_threads.c is there, each of its threads does. */
static struct clock all_threads;
static bool apart;
static __thread struct {
    int number;                         /* 0: the main thread, or none yet */
    bool numbered;
    struct clock clock;
} own;
static bool is_thread[MOST_STREAMS];

static struct {
    uint32_t time;                      /* 0: nothing is touched */
    const struct clock *clock;
    const struct step *step;
    struct {
        const struct cell *cell;
        const void *where;
    } *owed;                            /* what it has read of such */
    size_t n_owed, room;
} now;
static int n_streams = 1;

bool fake_watches(void)
{
    static int known = -1;

    if (known < 0)
        known = getenv("TASUKI_FAKE_WATCH") && getenv("TASUKI_FAKE_STRICT");
    return known;
}

static const char *word_of(const struct step *s)
{
    static const char *const words[] = { "a copy", "a send", "a receive", "an event", "a wait",
                                         "a memset", "a kernel", "a library's call",
                                         "what ends a use", "what is to be written anew",
                                         "a sum" };

    return !s ? "the host" : s->kind == KERNEL ? fake_kernel_name(s->kernel) : words[s->kind];
}

void fake_report(const char *what, const void *where)
{
    fprintf(stderr, "fake GPU: %s", word_of(now.step));
    if (now.step || now.time >> 24)
        fprintf(stderr, " in %s %u", now.step ? "stream" : "thread", now.time >> 24);
    fprintf(stderr, " %s", what);
    for (int i = 0; where && i < MOST_BLOCKS; i++) {
        const struct block *b = &fake.blocks[i];

        if (b->data && (const char *)where >= b->data && (const char *)where < b->data + b->size)
            fprintf(stderr, ", byte %zu of %zu %s", (size_t)((const char *)where - b->data),
                    b->size, b->pinned ? "on the host" : "on the GPU");
    }
    fprintf(stderr, "\n");
    _exit(99);
}

static struct clock *host(void)
{
    return apart ? &own.clock : &all_threads;
}

static void join(struct clock *to, const struct clock *from)
{
    for (int i = 0; i < MOST_STREAMS; i++)
        to->of[i] = from->of[i] > to->of[i] ? from->of[i] : to->of[i];
}

/* Events and waiting --------------------------------------------------------------------------- */

void fake_watch_stream(struct CUstream_st *stream)
{
    if (n_streams == MOST_STREAMS && fake_watches())
        fake_report("is given too many streams", NULL);
    stream->number = n_streams < MOST_STREAMS ? n_streams++ : 0;
}

void fake_watch_append(struct CUstream_st *stream, struct step *s)
{
    if (!fake_watches())
        return;
    join(&stream->clock, host());
    stream->clock.of[stream->number]++;
    s->time = (uint32_t)stream->number << 24 | stream->clock.of[stream->number];
    s->clock = stream->clock;
}

void fake_watch_record(struct CUevent_st *event, const struct CUstream_st *stream)
{
    event->clock = stream->clock;
}

void fake_watch_wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    if (fake_watches() && !event->recorded)
        fake_report("waits for an event that nobody recorded", NULL);
    event->awaited = true;
    join(&stream->clock, &event->clock);
}

void fake_watch_host(const struct clock *clock)
{
    join(host(), clock);
}

void fake_watch_event_end(const struct CUevent_st *event)
{
    if (fake_watches() && event->recorded && !event->awaited && !event->timed)
        fake_report("destroys an event that was recorded, and nobody waited for", NULL);
}

/* Memory --------------------------------------------------------------------------------------- */

void fake_watch_memory(int area, char *start, size_t size)
{
    if (!fake_watches())
        return;
    areas[area].start = start;
    areas[area].size = size;
    areas[area].cells = mmap(NULL, size / 4 * sizeof(struct cell), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (areas[area].cells == MAP_FAILED)
        abort();
}

static struct cell *cell_of(const void *where)
{
    for (int i = 0; i < 2; i++) {
        size_t at = (size_t)((const char *)where - areas[i].start);

        if (at < areas[i].size)
            return &areas[i].cells[at / 4];
    }
    return NULL;
}

static bool before(uint32_t time)
{
    return now.clock->of[time >> 24] >= (time & 0xffffff);
}

static void report_order(uint32_t time, const char *mine, const char *theirs, const void *where)
{
    char text[160], who[32] = "the host";

    if (time >> 24)
        snprintf(who, sizeof(who), "%s %u", is_thread[time >> 24] ? "thread" : "stream", time >> 24);
    snprintf(text, sizeof(text), "%s what %s %s, and nothing orders the two", mine, who, theirs);
    fake_report(text, where);
}

/* Apart from what is said of it: this is asked for each access. */
static inline void check_order(uint32_t time, const char *mine, const char *theirs,
                               const void *where)
{
    if (!before(time))
        report_order(time, mine, theirs, where);
}

static void note_read(struct cell *c)
{
    for (int i = 0; i < 2; i++)
        if (before(c->read[i])) {
            c->read[i] = now.time;
            return;
        }
    c->read[now.time % 2] = now.time;
}

static void note_owed(const struct cell *c, const void *where)
{
    if (now.n_owed == now.room) {
        now.room = 2 * now.room + 1024;
        now.owed = realloc(now.owed, now.room * sizeof(*now.owed));
    }
    now.owed[now.n_owed].cell = c;
    now.owed[now.n_owed++].where = where;
}

/* What adds to it may have something for a part of it alone. */
static struct debt {
    struct cell *cells;
    size_t n;
} *debts;
static size_t n_debts, debts_room;

static void owe(struct cell *cells, size_t n)
{
    if (n_debts == debts_room) {
        debts_room = 2 * debts_room + 64;
        debts = realloc(debts, debts_room * sizeof(*debts));
    }
    debts[n_debts++] = (struct debt){ cells, n };
}

static void pay(const struct cell *written)
{
    for (size_t i = 0; i < n_debts; i++) {
        struct debt d = debts[i];

        if (written < d.cells || written >= d.cells + d.n)
            continue;
        for (size_t k = 0; k < d.n; k++)
            if (d.cells[k].state == OWED)
                d.cells[k].state = DEFINED;
        debts[i] = debts[--n_debts];
        return;
    }
}

/* What the step that is now has done there already, with nothing after it, changes nothing. */
static inline bool is_known(const struct cell *c, bool writes)
{
    if (!writes)
        return c->read[0] == now.time || c->read[1] == now.time;
    return c->wrote == now.time && c->state == DEFINED && !c->read[0] && !c->read[1];
}

static void touch(struct cell *c, bool writes, const void *where)
{
    if (is_known(c, writes))
        return;
    if (c->state == FREED)
        fake_report(writes ? "writes memory that was freed" : "reads memory that was freed", where);
    if (c->state == UNDEFINED && !writes)
        fake_report("reads what nobody wrote", where);
    if (c->state == OWED && !writes)
        note_owed(c, where);
    check_order(c->wrote, writes ? "writes" : "reads", "writes", where);
    if (!writes) {
        note_read(c);
        return;
    }
    for (int i = 0; i < 2; i++)
        check_order(c->read[i], "writes", "reads", where);
    if (c->state == OWED)
        pay(c);
    *c = (struct cell){ .wrote = now.time, .state = DEFINED };
}

void fake_watch_touch(const void *where, size_t bytes, bool writes)
{
    struct cell *c = now.time ? cell_of(where) : NULL;
    size_t n = ((uintptr_t)where % 4 + bytes + 3) / 4;

    for (size_t i = 0; c && i < n; i++)
        touch(&c[i], writes, (const char *)where + 4 * i);
}

void fake_watch_begin(const struct step *s)
{
    now.time = s->time;
    now.clock = &s->clock;
    now.step = s;
}

void fake_watch_end(void)
{
    for (size_t i = 0; i < now.n_owed; i++)
        if (now.owed[i].cell->state == OWED)
            fake_report("reads what nobody wrote anew", now.owed[i].where);
    now.n_owed = 0;
    now.time = 0;
    now.step = NULL;
}

/* The first thread that touches memory is the first of the numbers. */
static void take_number(void)
{
    static bool first = true;

    if (!first && n_streams == MOST_STREAMS)
        fake_report("has too many threads", NULL);
    own.number = first ? 0 : n_streams++;
    own.numbered = is_thread[own.number] = true;
    first = false;
}

static void begin_host(void)
{
    if (apart && !own.numbered)
        take_number();
    now.time = (uint32_t)own.number << 24 | ++host()->of[own.number];
    now.clock = host();
    now.step = NULL;
}

static void mark(const void *where, size_t bytes, uint32_t state)
{
    struct cell *c = cell_of(where);

    fake_watch_touch(where, bytes, true);
    for (size_t i = 0; c && i < (bytes + 3) / 4; i++)
        c[i].state = state;
}

void fake_watch_forget(const void *where, size_t bytes)
{
    mark(where, bytes, UNDEFINED);
}

void fake_watch_renew(const void *where, size_t bytes)
{
    struct cell *c = cell_of(where);
    size_t n = (bytes + 3) / 4;
    bool defined = c != NULL;

    for (size_t i = 0; c && i < n; i++) {
        if (c[i].state == OWED)
            fake_report("finds what nobody wrote anew", (const char *)where + 4 * i);
        defined = defined && c[i].state == DEFINED;
    }
    if (!defined)
        return;
    mark(where, bytes, OWED);
    owe(c, n);
}

/* cudaFree() has waited for all streams. */
void fake_watch_free(void *data, bool pinned)
{
    if (!fake_watches() || !data)
        return;
    begin_host();
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (fake.blocks[i].data == data && fake.blocks[i].pinned == pinned) {
            mark(data, fake.blocks[i].size, FREED);
            fake_watch_end();
            return;
        }
    fake_report("frees what is not allocated", NULL);
}

/* What the program says of itself: tasuki-cuda.so looks for these by name. */
void tasuki_watch_host(const void *memory, size_t bytes, bool writes);

void tasuki_watch_host(const void *memory, size_t bytes, bool writes)
{
    ALONE;

    if (!fake_watches())
        return;
    begin_host();
    fake_watch_touch(memory, bytes, writes);
    fake_watch_end();
}

void tasuki_watch_forget(cudaStream_t stream, void *memory, size_t bytes);
void tasuki_watch_renew(cudaStream_t stream, void *memory, size_t bytes);

static void add_mark(cudaStream_t stream, enum kind kind, void *memory, size_t bytes)
{
    ALONE;
    struct step *s;

    if (!fake_watches())
        return;
    s = fake_add_step(stream, kind);
    s->to = memory;
    s->bytes = bytes;
}

void tasuki_watch_forget(cudaStream_t stream, void *memory, size_t bytes)
{
    add_mark(stream, FORGET, memory, bytes);
}

void tasuki_watch_renew(cudaStream_t stream, void *memory, size_t bytes)
{
    add_mark(stream, RENEW, memory, bytes);
}

/* Threads -------------------------------------------------------------------------------------- */

#define MOST_GIVEN (1 << 16)

static struct given {
    const void *what;
    struct clock clock;
} given[MOST_GIVEN];
static atomic_flag giving = ATOMIC_FLAG_INIT;

void fake_watch_threads(void)
{
    apart = fake_watches();
}

/* Under 'giving'. */
static struct given *find_given(const void *what)
{
    size_t at = (size_t)((uintptr_t)what * 0x9e3779b97f4a7c15u >> 48);

    for (size_t n = 0; n < MOST_GIVEN; n++, at = (at + 1) % MOST_GIVEN)
        if (!given[at].what || given[at].what == what) {
            given[at].what = what;
            return &given[at];
        }
    abort();
}

static bool counts(const void *what)
{
    return apart && !fake_is_lock(what);
}

void fake_watch_gives(const void *what)
{
    if (!counts(what))
        return;
    while (atomic_flag_test_and_set(&giving))
        ;
    join(&find_given(what)->clock, &own.clock);
    atomic_flag_clear(&giving);
}

void fake_watch_takes(const void *what)
{
    if (!counts(what))
        return;
    while (atomic_flag_test_and_set(&giving))
        ;
    join(&own.clock, &find_given(what)->clock);
    atomic_flag_clear(&giving);
}

/* What the program says of its atomics. */
void tasuki_watch_gives(const void *what);
void tasuki_watch_takes(const void *what);

static bool skips(const char *name)
{
    ALONE;

    return fake_mutates(name);
}

void tasuki_watch_gives(const void *what)
{
    if (apart && !skips("skip-give"))
        fake_watch_gives(what);
}

void tasuki_watch_takes(const void *what)
{
    if (apart && !skips("skip-take"))
        fake_watch_takes(what);
}

/* Some of it may be holes that mean nothing. */
static void read_known(const char *from, size_t bytes)
{
    const struct cell *c = cell_of(from);

    for (size_t i = 0; c && i < bytes; i += 4)
        if (c[i / 4].state != UNDEFINED)
            fake_watch_touch(from + i, 4, false);
}

void fake_watch_copied(void *to, const void *from, size_t bytes)
{
    if (!apart || fake_is_held() || (!cell_of(to) && !cell_of(from)))
        return;
    fake_hold();
    begin_host();
    read_known(from, bytes);
    fake_watch_touch(to, bytes, true);
    fake_watch_end();
    fake_let_go(NULL);
}

/* At the end of a program that fails nobody puts away what it has. */
void fake_watch_left(int streams, int graphs)
{
    bool memory = false;

    for (int i = 0; i < MOST_BLOCKS; i++)
        memory |= fake.blocks[i].data != NULL;
    if (memory)
        fake_report("ends with memory that it never freed", NULL);
    if (streams)
        fake_report("ends with streams that it never destroyed", NULL);
    if (graphs)
        fake_report("ends with graphs that it never destroyed", NULL);
}

/* What the compiler calls ---------------------------------------------------------------------- */

#define ACCESS(name, bytes, writes)                                     \
    void name(void *where);                                             \
    void name(void *where)                                              \
    {                                                                   \
        if (now.time)                                                   \
            fake_watch_touch(where, bytes, writes);                     \
    }
#define ACCESSES(bytes)                                                 \
    ACCESS(__tsan_read##bytes, bytes, false)                            \
    ACCESS(__tsan_write##bytes, bytes, true)                            \
    ACCESS(__tsan_unaligned_read##bytes, bytes, false)                  \
    ACCESS(__tsan_unaligned_write##bytes, bytes, true)                  \
    ACCESS(__tsan_volatile_read##bytes, bytes, false)                   \
    ACCESS(__tsan_volatile_write##bytes, bytes, true)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

#define RANGE(name, writes)                                             \
    void name(void *where, size_t bytes);                               \
    void name(void *where, size_t bytes)                                \
    {                                                                   \
        if (now.time)                                                   \
            fake_watch_touch(where, bytes, writes);                     \
    }
RANGE(__tsan_read_range, false)
RANGE(__tsan_write_range, true)

#define NOTHING(name)                                                   \
    void name(void *p);                                                 \
    void name(void *p)                                                  \
    {                                                                   \
        (void)p;                                                        \
    }
NOTHING(__tsan_func_entry)
NOTHING(__tsan_func_exit)
NOTHING(__tsan_init)
NOTHING(__tsan_vptr_read)
