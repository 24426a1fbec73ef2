/* SPDX-License-Identifier: MIT */
/* Which node copies which files (--stage-to): its ranks agree by the names of their hosts. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "topology/report.h"
#include "train/session.h"

/* What the ranks read: of each a byte for each tensor of both data, 1 where it does. */
struct readers {
    int train, test;            /* tensors */
    const void **parts;
    size_t *sizes;
    void *block;
};

static int count_tensors(const struct source *source)
{
    int n = 0;

    if (source->data)
        data_tensors(source->data, &n);
    return n;
}

static void mark(const struct session *s, const struct source *source, unsigned char *reads)
{
    for (int c = 0; source->data && c < s->n_chunks; c++)
        for (int i = 0; i < s->compiled[c]->program->n_inputs; i++)
            reads[source->tensors[c][i]] = 1;
}

static int find_readers(struct session *s, struct readers *r, struct err *err)
{
    size_t n;
    unsigned char *mine;
    int bad;

    r->train = count_tensors(&s->train);
    r->test = count_tensors(&s->test);
    n = (size_t)(r->train + r->test);
    mine = mem_new(n, 1);
    mark(s, &s->train, mine);
    mark(s, &s->test, mine + r->train);
    r->parts = mem_new((size_t)s->size, sizeof(*r->parts));
    r->sizes = mem_new((size_t)s->size, sizeof(*r->sizes));
    bad = comm_exchange(s->comm, mine, n, &r->block, r->parts, r->sizes, err);
    free(mine);
    return bad;
}

static void free_readers(struct readers *r)
{
    free(r->block);
    free(r->parts);
    free(r->sizes);
}

static bool reads(const struct readers *r, int rank)
{
    return memchr(r->parts[rank], 1, r->sizes[rank]);
}

/* The first rank that reads on the host of this one; -1: none does. */
static int leader(const struct session *s, const struct readers *r, int rank)
{
    for (int first = 0; first < s->size; first++)
        if (reads(r, first) && comm_same_host(s->comm, first, rank))
            return first;
    return -1;
}

/* Nodes start with different files, so that not all read the same one at once. */
static void count_nodes(struct session *s, const struct readers *r, struct staging_options *o)
{
    int before = 0;

    for (int rank = 0; rank < s->size; rank++)
        if (reads(r, rank)) {
            bool leads = leader(s, r, rank) == rank;

            s->staging_ranks++;
            s->staging_nodes += leads;
            before += leads && rank < leader(s, r, s->rank);
        }
    o->first = (int)((int64_t)before * o->n / s->staging_nodes);
}

static void add_files(const struct data *data, const unsigned char *wanted, int tensors,
                      struct staging_options *o)
{
    int n = 0;
    const struct data_file *files = data ? data_files(data, &n) : NULL;

    for (int i = 0; i < n; i++) {
        int t = 0;

        while (t < tensors && !(wanted[t] && data_file_feeds(data, i, t)))
            t++;
        if (t < tensors)
            *(const struct data_file **)mem_push((void **)&o->files, &o->n,
                                                 sizeof(*o->files)) = &files[i];
    }
}

/* The node's share: what any of its ranks reads. */
static void list_files(const struct session *s, const struct readers *r,
                       struct staging_options *o)
{
    unsigned char *wanted = mem_new((size_t)(r->train + r->test), 1);

    for (int rank = 0; rank < s->size; rank++)
        for (int t = 0; t < r->train + r->test && comm_same_host(s->comm, rank, s->rank); t++)
            wanted[t] |= ((const unsigned char *)r->parts[rank])[t];
    add_files(s->train.data, wanted, r->train, o);
    add_files(s->test.data, wanted + r->train, r->test, o);
    free(wanted);
}

/* The leader of the node finds a directory, of which it tells the others. */
static int open_staging(struct session *s, const struct readers *r, struct staging_options *o,
                        struct err *err)
{
    bool stages = reads(r, s->rank);
    int first = stages ? leader(s, r, s->rank) : -1, bad;
    const void **parts = mem_new((size_t)s->size, sizeof(*parts));
    size_t *sizes = mem_new((size_t)s->size, sizeof(*sizes));
    const char *path = "";
    char *found = NULL;
    void *block = NULL;

    if (first == s->rank)
        s->staging = staging_open(o, err);
    bad = session_agree(s, first == s->rank && !s->staging, err);
    if (!bad) {
        path = s->staging ? staging_directory(s->staging) : "";
        bad = comm_exchange(s->comm, path, strlen(path), &block, parts, sizes, err);
    }
    if (!bad) {
        if (stages && first != s->rank) {
            found = mem_printf("%.*s", (int)sizes[first], (const char *)parts[first]);
            o->directory = found;
            s->staging = staging_open(o, err);
        }
        bad = session_agree(s, stages && !s->staging, err);
    }
    free(found);
    free(block);
    free(parts);
    free(sizes);
    return bad;
}

int session_stage(struct session *session, struct err *err)
{
    struct session *s = session;
    struct staging_options options = {
        .parent = s->settings.stage_to, .host = comm_host(s->comm, s->rank),
        .keep = s->settings.keep_staged,
    };
    struct readers readers = { 0 };
    int n, n_test = 0, bad;

    if (!s->settings.stage_to)
        return 0;
    data_files(s->train.data, &n);
    if (s->test.data)
        data_files(s->test.data, &n_test);
    if (n + n_test == 0) {
        if (s->rank == 0)
            log_warning("--stage-to: %s has no files: there is nothing to stage",
                        data_path(s->train.data));
        return 0;
    }
    s->staging_start = trace_clock();
    bad = find_readers(s, &readers, err);
    if (!bad) {
        if (reads(&readers, s->rank))
            list_files(s, &readers, &options);
        count_nodes(s, &readers, &options);
        bad = open_staging(s, &readers, &options, err);
    }
    free((void *)options.files);
    free_readers(&readers);
    return bad;
}

/* Telling ----------------------------------------------------------------------------- */

void session_note_staging(struct session *session, double entries[BOARD_COUNT])
{
    struct staging_state state;

    staging_take(session->staging);
    state = staging_state(session->staging);
    entries[BOARD_STAGED] = state.over ? 1 : 0;
    entries[BOARD_STAGED_BYTES] = state.bytes;
    entries[BOARD_COPIED_BYTES] = state.copied;
}

void session_tell_staged(struct session *session, int64_t step, const double sums[BOARD_COUNT])
{
    struct session *s = session;
    double bytes = sums[BOARD_STAGED_BYTES], copied = sums[BOARD_COPIED_BYTES], seconds;
    char all[24], some[24], rate[24];

    if (s->staging_ranks == 0 || s->staged || sums[BOARD_STAGED] < s->staging_ranks)
        return;
    s->staged = true;
    seconds = trace_clock() - s->staging_start;
    session_log(s, json_pack("{s:s, s:I, s:i, s:I, s:I, s:f, s:f}", "event", "staged", "step",
                             (json_int_t)step, "nodes", s->staging_nodes, "bytes",
                             (json_int_t)bytes, "copied", (json_int_t)copied, "seconds",
                             seconds, "bytes_per_second", copied / seconds));
    if (s->rank == 0)
        log_info("staged: %s on %d node%s, %s of it copied in %.1f s (%s)",
                 report_bytes(bytes, all), s->staging_nodes, s->staging_nodes == 1 ? "" : "s",
                 report_bytes(copied, some), seconds, report_rate(copied / seconds, rate));
}
