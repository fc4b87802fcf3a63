// CUDA Runtime API, "Stream Ordered Memory Allocator".
//
// A pool takes memory from the GPU in multiples of 32 MiB and gives back what is free above its
// release threshold, here at once, on a GPU when the program waits next. The multiple is an
// assumption; the reference leaves it open.
#include "cudart.h"

#include <pthread.h>
#include <string.h>

int cudaFree(void *address);

#define STEP_BYTES (32 * MIB)

typedef struct {
    int device;
    uint64_t used, used_high, reserved, reserved_high, threshold;
    int reuse[3]; // cudaMemPoolReuse...: 1 by default
} pool_t;

static pool_t pools[MAX_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void set_reserved(pool_t *pool, uint64_t bytes) {
    if (bytes < pool->reserved) vn_give_physical(pool->device, pool->reserved - bytes);
    pool->reserved = bytes;
    if (bytes > pool->reserved_high) pool->reserved_high = bytes;
}

static void trim(pool_t *pool, uint64_t keep) {
    if (keep >= pool->reserved) return;
    uint64_t least = (pool->used + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
    uint64_t bytes = least > keep ? least : (keep + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
    if (bytes < pool->reserved) set_reserved(pool, bytes);
}

// A GPU's default pool.
API int cudaDeviceGetDefaultMemPool(void **pool, int device) {
    int status = vn_use_device(device);
    if (status) return failed(status);
    pools[device].device = device;
    if (!pools[device].reuse[0]) memcpy(pools[device].reuse, (int[]){1, 1, 1}, sizeof pools[device].reuse);
    *pool = &pools[device];
    return SUCCESS;
}

// Take memory from the current pool of the stream's GPU.
API int cudaMallocAsync(void **address, size_t bytes, void *stream) {
    void *found;
    int status = cudaDeviceGetDefaultMemPool(&found, vn_stream_device(stream));
    if (status) return status;
    pool_t *pool = found;
    bytes = (bytes + 511) / 512 * 512;
    COUNT(ASSUMED, "libcudart", "cudaMallocAsync: pools grow by 32 MiB");
    pthread_mutex_lock(&lock);
    uint64_t needed = (pool->used + bytes + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
    if (needed > pool->reserved) {
        status = vn_take_physical(pool->device, needed - pool->reserved);
        if (!status) set_reserved(pool, needed);
    }
    if (!status && bytes) status = vn_allocate(pool->device, bytes, POOL, address);
    if (!status) pool->used += bytes;
    if (pool->used > pool->used_high) pool->used_high = pool->used;
    pthread_mutex_unlock(&lock);
    return failed(status);
}

// Give it back when the stream comes to it.
API int cudaFreeAsync(void *address, void *stream) {
    vn_range_t range;
    (void)stream;
    if (!vn_find(address, &range) || range.kind != POOL) return cudaFree(address);
    pthread_mutex_lock(&lock);
    int status = vn_free(address, POOL);
    pool_t *pool = &pools[range.device];
    if (!status) pool->used -= range.bytes;
    trim(pool, pool->threshold);
    pthread_mutex_unlock(&lock);
    return failed(status);
}

// Numbers as in cudaMemPoolAttr: 1 to 3 reuse, 4 threshold, 5 and 6 reserved, 7 and 8 used.
API int cudaMemPoolGetAttribute(pool_t *pool, int attribute, void *value) {
    switch (attribute) {
    case 1: case 2: case 3: *(int *)value = pool->reuse[attribute - 1]; break;
    case 4: *(uint64_t *)value = pool->threshold; break;
    case 5: *(uint64_t *)value = pool->reserved; break;
    case 6: *(uint64_t *)value = pool->reserved_high; break;
    case 7: *(uint64_t *)value = pool->used; break;
    case 8: *(uint64_t *)value = pool->used_high; break;
    default: return failed(INVALID_VALUE);
    }
    return SUCCESS;
}

// High marks can be set to 0 only: they begin anew.
API int cudaMemPoolSetAttribute(pool_t *pool, int attribute, void *value) {
    switch (attribute) {
    case 1: case 2: case 3: pool->reuse[attribute - 1] = *(int *)value; break;
    case 4: pool->threshold = *(uint64_t *)value; break;
    case 6: pool->reserved_high = pool->reserved; break;
    case 8: pool->used_high = pool->used; break;
    default: return failed(INVALID_VALUE);
    }
    return SUCCESS;
}

// Who may read the pool's memory: everybody here.
API int cudaMemPoolSetAccess(pool_t *pool, const void *accesses, size_t count) {
    (void)pool, (void)accesses, (void)count;
    return SUCCESS;
}

// Give memory back to the GPU, but for so much.
API int cudaMemPoolTrimTo(pool_t *pool, size_t keep) {
    pthread_mutex_lock(&lock);
    trim(pool, keep);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
