// NCCL. Source: NVIDIA's NCCL API reference. Ranks never meet: each does its part alone, and what
// others would have sent reads as zeros.
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

#ifndef NCCL_VERSION
#define NCCL_VERSION 22800 // where PyTorch's wheel does not say which it is for
#endif

typedef struct {
    int ranks, rank;
} comm_t;
typedef struct {
    char bytes[128];
} ncclUniqueId;
enum { INVALID_ARGUMENT = 4 }; // ncclResult_t

API int ncclGetVersion(int *version) { // 10000 * major + 100 * minor + patch; PyTorch's
    *version = NCCL_VERSION;
    return 0;
}
API const char *ncclGetErrorString(int error) { return error ? "an error of vramlab's substitute for NCCL" : "no error"; }
API const char *ncclGetLastError(void *comm) {
    (void)comm;
    return "";
}

// An id that the ranks of a communicator share.
API int ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 1, sizeof *id);
    return 0;
}

// A communicator of so many ranks; this is one of them.
API int ncclCommInitRank(comm_t **comm, int ranks, ncclUniqueId id, int rank) {
    (void)id;
    if (rank < 0 || rank >= ranks) return INVALID_ARGUMENT;
    *comm = malloc(sizeof **comm);
    **comm = (comm_t){ranks, rank};
    return 0;
}
API int ncclCommInitRankConfig(comm_t **comm, int ranks, ncclUniqueId id, int rank, void *config) {
    (void)config;
    return ncclCommInitRank(comm, ranks, id, rank);
}
API int ncclCommInitRankScalable(comm_t **comm, int ranks, int rank, int ids, ncclUniqueId *id, void *config) {
    (void)ids, (void)config;
    return ncclCommInitRank(comm, ranks, *id, rank);
}
API int ncclCommFinalize(comm_t *comm) {
    (void)comm;
    return 0;
}
API int ncclCommDestroy(comm_t *comm) {
    free(comm);
    return 0;
}
API int ncclCommAbort(comm_t *comm) { return ncclCommDestroy(comm); }
API int ncclCommGetAsyncError(comm_t *comm, int *error) { // there never was one
    (void)comm;
    *error = 0;
    return 0;
}
API int ncclCommCount(comm_t *comm, int *count) {
    *count = comm->ranks;
    return 0;
}
API int ncclCommUserRank(comm_t *comm, int *rank) {
    *rank = comm->rank;
    return 0;
}

// A reduction with a factor: only collectives would read it.
API int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, comm_t *comm) {
    (void)scalar, (void)type, (void)residence, (void)comm;
    *op = 5; // the first after the built-in ones
    return 0;
}
