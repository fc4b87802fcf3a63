// NCCL. Source: NVIDIA's NCCL API reference. Ranks never meet: each does its part alone, as if every
// other rank had sent what it sends itself.
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

#ifndef NCCL_VERSION
#define NCCL_VERSION 22800 // where PyTorch's wheel does not say which it is for
#endif

typedef struct {
    int ranks, rank; // ranks 0: not known
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
// Ranks that name the same color, in the order of their keys: PyTorch's keys are ranks in the group.
// How many there are, only they together know.
API int ncclCommSplit(comm_t *comm, int color, int key, comm_t **split, void *config) {
    (void)comm, (void)config;
    *split = NULL;
    if (color < 0) return 0; // this rank is in none
    *split = malloc(sizeof **split);
    **split = (comm_t){0, key};
    return 0;
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
    if (comm->ranks) return 0;
    COUNT(REFUSED, "libnccl", "ncclCommCount of a communicator that was split off");
    return INVALID_ARGUMENT;
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

// ---- collectives ----

static size_t bytes_of(size_t count, int type) { // ncclDataType_t
    static const unsigned char sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (size_t)type < sizeof sizes ? count * sizes[type] : 0;
}
static int copy(void *to, const void *from, size_t bytes, void *stream) {
    vn_work(stream);
    return vn_copy(to, from, bytes) ? INVALID_ARGUMENT : 0;
}
API int ncclAllGather(const void *send, char *receive, size_t count, int type, comm_t *comm, void *stream) {
    COUNT(COMPUTES, "libnccl", "ncclAllGather");
    size_t bytes = bytes_of(count, type);
    int first = comm->ranks ? 0 : comm->rank, last = comm->ranks ? comm->ranks : comm->rank + 1, status = 0;
    for (int rank = first; rank < last; rank++) status |= copy(receive + (size_t)rank * bytes, send, bytes, stream);
    return status;
}
API int ncclReduceScatter(const char *send, void *receive, size_t count, int type, int op, comm_t *comm, void *stream) {
    (void)op;
    COUNT(COMPUTES, "libnccl", "ncclReduceScatter");
    size_t bytes = bytes_of(count, type);
    return copy(receive, send + (size_t)comm->rank * bytes, bytes, stream);
}
API int ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, comm_t *comm, void *stream) {
    (void)op, (void)comm;
    COUNT(COMPUTES, "libnccl", "ncclAllReduce");
    return copy(receive, send, bytes_of(count, type), stream);
}
API int ncclReduce(const void *send, void *receive, size_t count, int type, int op, int root, comm_t *comm, void *stream) {
    (void)op;
    COUNT(COMPUTES, "libnccl", "ncclReduce");
    return root == comm->rank ? copy(receive, send, bytes_of(count, type), stream) : 0;
}
API int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, comm_t *comm, void *stream) {
    (void)root, (void)comm;
    COUNT(COMPUTES, "libnccl", "ncclBroadcast");
    return copy(receive, send, bytes_of(count, type), stream);
}
