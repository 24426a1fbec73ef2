/* SPDX-License-Identifier: MIT */
/* Preloaded: MPI that can less than the one that is here. TASUKI_FAKE_MPI=funneled lets the main
 * thread call it and no other; TASUKI_FAKE_MPI=NUMBER has tags up to that; TASUKI_FAKE_MPI=adapters
 * says with which adapter of UCX it starts.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *asked(void)
{
    const char *text = getenv("TASUKI_FAKE_MPI");

    return text ? text : "";
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    const char *adapters = getenv("UCX_NET_DEVICES");
    int code;

    if (strcmp(asked(), "adapters") == 0)
        fprintf(stderr, "MPI starts with %s\n", adapters ? adapters : "all");
    code = PMPI_Init_thread(argc, argv, required, provided);
    if (strcmp(asked(), "funneled") == 0)
        *provided = MPI_THREAD_FUNNELED;
    return code;
}

int MPI_Comm_get_attr(MPI_Comm comm, int keyval, void *value, int *flag)
{
    static int tags;
    int code = PMPI_Comm_get_attr(comm, keyval, value, flag);

    tags = atoi(asked());
    if (keyval == MPI_TAG_UB && tags > 0)
        *(int **)value = &tags;
    return code;
}
