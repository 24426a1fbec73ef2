/* SPDX-License-Identifier: MIT */
/* tasuki-mpi.so: the PMIx client.
 *
 * Every fence collects data: in Slurm 22.05 one that does not returns at once on fewer than 50
 * nodes.
 */
#include "config.h"

#include "comm/mpi_private.h"

#ifdef HAVE_PMIX

/* Its inline functions do not pass our warnings. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wconversion"
#include <pmix.h>
#pragma GCC diagnostic pop
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define GET_TIMEOUT 60  /* seconds */

/* As MPI_CHECK. */
#define PMIX_CHECK(call, err)                                                               \
    do {                                                                                    \
        pmix_status_t pmix_check_code = (call);                                             \
        if (pmix_check_code != PMIX_SUCCESS)                                                \
            return pmix_error(pmix_check_code, #call, (err));                               \
    } while (0)

struct pmix_session {
    pmix_proc_t me, all;
    int local_size;
    char host[256];
    unsigned round;         /* of exchanges: makes the keys */
    atomic_int fence;       /* status of the fence under way, FENCE_OPEN while it is */
};

#define FENCE_OPEN 1        /* PMIx' own codes are zero or negative */

static int pmix_error(pmix_status_t code, const char *call, struct err *err)
{
    return err_set(err, "%.*s: %s", (int)strcspn(call, "("), call, PMIx_Error_string(code));
}

static int get_count(const pmix_proc_t *proc, const char *key)
{
    pmix_value_t *value;
    int count = -1;

    if (PMIx_Get(proc, key, NULL, 0, &value) != PMIX_SUCCESS)
        return -1;
    if (value->type == PMIX_UINT32)
        count = (int)value->data.uint32;
    else if (value->type == PMIX_UINT16)
        count = value->data.uint16;
    PMIX_VALUE_RELEASE(value);
    return count;
}

static void get_text(const pmix_proc_t *proc, const char *key, char *text, size_t size)
{
    pmix_value_t *value;

    if (PMIx_Get(proc, key, NULL, 0, &value) != PMIX_SUCCESS)
        return;
    if (value->type == PMIX_STRING && value->data.string)
        snprintf(text, size, "%s", value->data.string);
    PMIX_VALUE_RELEASE(value);
}

int pmix_session_open(struct pmix_session **result, struct err *err)
{
    struct pmix_session *session;
    pmix_proc_t me;

    PMIX_CHECK(PMIx_Init(&me, NULL, 0), err);
    session = mem_new(1, sizeof(*session));
    session->me = me;
    PMIX_PROC_CONSTRUCT(&session->all);
    memcpy(session->all.nspace, me.nspace, sizeof(me.nspace));
    session->all.rank = PMIX_RANK_WILDCARD;
    session->local_size = get_count(&session->all, PMIX_LOCAL_SIZE);
    get_text(&session->me, PMIX_HOSTNAME, session->host, sizeof(session->host));
    *result = session;
    return 0;
}

void pmix_session_close(struct pmix_session *session)
{
    if (!session)
        return;
    PMIx_Finalize(NULL, 0);
    free(session);
}

int pmix_session_local_size(const struct pmix_session *session)
{
    return session->local_size;
}

const char *pmix_session_host(const struct pmix_session *session)
{
    return session->host;
}

/* "OpenPMIx 4.2.2, repo revision: …" or "OpenPMIx 5.0.1 (PMIx Standard: …" → "PMIx 4.2.2" */
const char *pmix_session_version(void)
{
    static char text[32];
    const char *full = PMIx_Get_version(), *number = full + strcspn(full, "0123456789");

    snprintf(text, sizeof(text), "PMIx %.*s", (int)strcspn(number, ", ("), number);
    return text;
}

const char *tasuki_pmix_version(void)
{
    return pmix_session_version() + strlen("PMIx ");
}

static void fence_ended(pmix_status_t status, void *user)
{
    struct pmix_session *session = user;

    atomic_store(&session->fence, status);
}

/* What MPI has yet to send is sent while this rank waits for PMIx: another one, that is to come, may be
 * waiting for it.
 */
static int let_mpi_move(const struct comm *comm, struct err *err)
{
    MPI_Comm control = mpi_state(comm)->control;
    int found;

    if (control != MPI_COMM_NULL)
        MPI_CHECK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, control, &found, MPI_STATUS_IGNORE), err);
    return 0;
}

static int collecting_fence(struct pmix_session *session, struct comm *comm, struct err *err)
{
    bool yes = true;
    pmix_info_t info;
    int status;

    PMIX_INFO_CONSTRUCT(&info);
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    atomic_store(&session->fence, FENCE_OPEN);
    status = PMIx_Fence_nb(&session->all, 1, &info, 1, fence_ended, session);
    if (status == PMIX_OPERATION_SUCCEEDED)
        atomic_store(&session->fence, PMIX_SUCCESS);
    else if (status != PMIX_SUCCESS)
        return pmix_error(status, "PMIx_Fence_nb", err);
    while ((status = atomic_load(&session->fence)) == FENCE_OPEN) {
        if (patience_over(comm_patience(comm)))
            return patience_fail(comm_patience(comm), "PMIx fence", err);
        if (let_mpi_move(comm, err))
            return -1;
        patience_pause(comm_patience(comm));
    }
    patience_renew(comm_patience(comm));
    PMIX_INFO_DESTRUCT(&info);
    return status == PMIX_SUCCESS ? 0 : pmix_error(status, "PMIx_Fence_nb", err);
}

static void name_key(const struct pmix_session *session, char key[32])
{
    snprintf(key, 32, "tasuki.%u", session->round);
}

static int put(struct pmix_session *session, const void *data, size_t size, struct err *err)
{
    pmix_value_t value;
    char key[32];

    name_key(session, key);
    memset(&value, 0, sizeof(value));
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = (char *)(uintptr_t)data;
    value.data.bo.size = size;
    PMIX_CHECK(PMIx_Put(PMIX_GLOBAL, key, &value), err);
    PMIX_CHECK(PMIx_Commit(), err);
    return 0;
}

/* Once a fence has collected it, it is with this node's server: that is not to wait for it. */
static int get(struct pmix_session *session, int rank, pmix_value_t **value, struct err *err)
{
    pmix_proc_t proc = session->all;
    pmix_info_t info[2];
    bool yes = true;
    int timeout = GET_TIMEOUT;
    char key[32];
    pmix_status_t status;

    name_key(session, key);
    proc.rank = (pmix_rank_t)rank;
    PMIX_INFO_CONSTRUCT(&info[0]);
    PMIX_INFO_LOAD(&info[0], PMIX_TIMEOUT, &timeout, PMIX_INT);
    PMIX_INFO_CONSTRUCT(&info[1]);
    PMIX_INFO_LOAD(&info[1], PMIX_IMMEDIATE, &yes, PMIX_BOOL);
    status = PMIx_Get(&proc, key, info, 2, value);
    if (status != PMIX_SUCCESS)
        return pmix_error(status, "PMIx_Get", err);
    if ((*value)->type == PMIX_BYTE_OBJECT && (*value)->data.bo.bytes && (*value)->data.bo.size > 0)
        return 0;
    PMIX_VALUE_RELEASE(*value);
    return err_set(err, "PMIx_Get: not the bytes that every rank puts");
}

/* Append what 'rank' gave to the block; a first byte that is not data was put before it,
 * since PMIx does not carry nothing.
 */
static int append(struct pmix_session *session, const struct comm *comm, int rank,
                  unsigned char **bytes, size_t *used, size_t *size, struct err *err)
{
    pmix_value_t *value;

    if (get(session, rank, &value, err))
        return err_prefix(err, "rank %d (%s)", rank, comm->hosts[rank]);
    *size = value->data.bo.size - 1;
    *bytes = mem_resize(*bytes, *used + *size + 1, 1);
    memcpy(*bytes + *used, value->data.bo.bytes + 1, *size);
    *used += *size;
    PMIX_VALUE_RELEASE(value);
    return 0;
}

int pmix_session_exchange(struct pmix_session *session, struct comm *comm, const void *data,
                          size_t size, void **block, const void **parts, size_t *sizes,
                          struct err *err)
{
    unsigned char *own = mem_new(size + 1, 1), *bytes = NULL;
    size_t used = 0;
    int status;

    if (size)
        memcpy(own + 1, data, size);
    session->round++;
    /* The others wait for this rank's part in the fence in any case. */
    status = put(session, own, size + 1, err);
    if (collecting_fence(session, comm, status ? NULL : err))
        status = -1;
    free(own);
    for (int r = 0; r < comm->size && !status; r++)
        status = append(session, comm, r, &bytes, &used, &sizes[r], err);
    if (status) {
        free(bytes);
        return -1;
    }
    used = 0;
    for (int r = 0; r < comm->size; r++) {
        parts[r] = bytes + used;
        used += sizes[r];
    }
    *block = bytes;
    return 0;
}

int pmix_session_fence(struct pmix_session *session, struct comm *comm, struct err *err)
{
    session->round++;
    return put(session, "", 1, err) || collecting_fence(session, comm, err) ? -1 : 0;
}

#else

int pmix_session_open(struct pmix_session **session, struct err *err)
{
    (void)err;
    *session = NULL;
    return 0;
}

void pmix_session_close(struct pmix_session *session)
{
    (void)session;
}

int pmix_session_local_size(const struct pmix_session *session)
{
    (void)session;
    return -1;
}

const char *pmix_session_host(const struct pmix_session *session)
{
    (void)session;
    return "";
}

const char *pmix_session_version(void)
{
    return "";
}

const char *tasuki_pmix_version(void)
{
    return "";
}

int pmix_session_exchange(struct pmix_session *session, struct comm *comm, const void *data,
                          size_t size, void **block, const void **parts, size_t *sizes,
                          struct err *err)
{
    (void)session, (void)comm, (void)data, (void)size, (void)block, (void)parts, (void)sizes;
    return err_set(err, "built without PMIx");
}

int pmix_session_fence(struct pmix_session *session, struct comm *comm, struct err *err)
{
    (void)session, (void)comm, (void)err;
    return 0;
}

#endif
