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
enum { INVALID_ARGUMENT = 4, INVALID_USAGE = 5 }; // ncclResult_t

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

// Tells NCCL of a buffer that collectives will use: here they need no preparation. PyTorch registers
// the segments of its allocator.
API int ncclCommRegister(comm_t *comm, void *buffer, size_t bytes, void **handle) {
    (void)comm, (void)bytes;
    *handle = buffer;
    return 0;
}
API int ncclCommDeregister(comm_t *comm, void *handle) {
    (void)comm, (void)handle;
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
// A group with one broadcast from each rank is an all-gather: so PyTorch's ProcessGroupNCCL2 gathers
// into a list of tensors, and all of them gather tensors of different sizes. What other ranks would
// have sent is what this rank has broadcast.
typedef struct {
    const void *send;
    void *receive, *stream;
    size_t bytes;
    comm_t *comm;
    int root;
} broadcast_t;
static _Thread_local struct {
    int depth;
    size_t count, room;
    broadcast_t *broadcasts;
} group;

API int ncclGroupStart(void) {
    group.depth++;
    return 0;
}
API int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, comm_t *comm, void *stream) {
    COUNT(COMPUTES, "libnccl", "ncclBroadcast");
    size_t bytes = bytes_of(count, type);
    if (group.depth) {
        if (group.count == group.room) {
            size_t room = 2 * group.room + 8;
            broadcast_t *larger = realloc(group.broadcasts, room * sizeof *larger);
            if (!larger) return INVALID_ARGUMENT;
            group.broadcasts = larger, group.room = room;
        }
        group.broadcasts[group.count++] = (broadcast_t){send, receive, stream, bytes, comm, root};
    }
    return copy(receive, send, bytes, stream);
}
static int gather(const broadcast_t *from_ranks, int ranks) {
    int status = 0;
    const broadcast_t *own = &from_ranks[from_ranks->comm->rank];
    for (const broadcast_t *each = from_ranks; each < from_ranks + ranks; each++) {
        size_t bytes = each->bytes < own->bytes ? each->bytes : own->bytes;
        if (each != own) status |= copy(each->receive, own->send, bytes, each->stream);
    }
    return status;
}
API int ncclGroupEnd(void) {
    int status = 0;
    if (!group.depth) return INVALID_USAGE;
    if (--group.depth) return 0;
    for (size_t at = 0, ranks; at < group.count; at += ranks) {
        const broadcast_t *first = &group.broadcasts[at], *end = group.broadcasts + group.count;
        ranks = 1;
        while (first + ranks < end && first[ranks].comm == first->comm && first[ranks].root == (int)ranks) ranks++;
        if (first->root == 0 && first->comm->ranks == (int)ranks) status |= gather(first, (int)ranks);
    }
    group.count = 0;
    return status;
}
