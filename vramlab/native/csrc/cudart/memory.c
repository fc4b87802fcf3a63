// CUDA Runtime API, "Memory Management", "Unified Addressing".
#include "cudart.h"

#include <string.h>
#include <unistd.h>

// Take memory on the current GPU. No bytes: a null pointer, without an error.
API int cudaMalloc(void **address, size_t bytes) {
    *address = NULL;
    int status = bytes ? vn_allocate(vn_device, bytes, DEVICE, address) : vn_use_device(vn_device);
    return failed(status);
}

// Memory that host and GPU both use; here it is on the GPU.
API int cudaMallocManaged(void **address, size_t bytes, unsigned flags) {
    (void)flags;
    if (!bytes) return failed(INVALID_VALUE);
    return failed(vn_allocate(vn_device, bytes, DEVICE, address));
}

// Bring managed memory to a GPU or to the host, ahead of its use: here it is where it was.
API int cudaMemPrefetchAsync(const void *address, size_t bytes) {
    vn_range_t range;
    (void)bytes;
    return failed(vn_find(address, &range) ? SUCCESS : INVALID_VALUE);
}

// Give memory back, after all work is done. A null pointer is nothing to do.
API int cudaFree(void *address) {
    if (!address) return failed(vn_use_device(vn_device));
    vn_synchronize();
    return failed(vn_free(address, DEVICE));
}

// Free and total memory of the current GPU.
API int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    return failed(vn_memory_info(vn_device, free_bytes, total_bytes));
}

// Take pinned memory of the host.
API int cudaHostAlloc(void **address, size_t bytes, unsigned flags) {
    (void)flags;
    return failed(vn_host_allocate(bytes, address));
}

// The same without flags.
API int cudaMallocHost(void **address, size_t bytes) { return cudaHostAlloc(address, bytes, 0); }

// Give pinned memory back. A null pointer is nothing to do.
API int cudaFreeHost(void *address) { return address ? failed(vn_host_free(address)) : SUCCESS; }

// Pin memory that is there already.
API int cudaHostRegister(void *address, size_t bytes, unsigned flags) {
    (void)flags;
    if (!address || !bytes) return failed(INVALID_VALUE);
    return failed(vn_host_register(address, bytes));
}

// Undo that.
API int cudaHostUnregister(void *address) { return failed(vn_host_unregister(address)); }

// The GPU's address of pinned memory: with unified addressing the same.
API int cudaHostGetDevicePointer(void **device_address, void *address, unsigned flags) {
    (void)flags;
    *device_address = address;
    return SUCCESS;
}

struct cudaPointerAttributes { // CUDA 13 has reserved members after these
    int type, device;
    void *devicePointer, *hostPointer;
};

// Where an address lies: cudaMemoryType 0 unregistered, 1 host, 2 device, 3 managed.
API int cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *address) {
    vn_range_t range;
    memset(found, 0, sizeof *found);
    if (vn_find(address, &range)) {
        found->type = range.kind == HOST ? HOST : DEVICE;
        found->device = range.device;
        found->devicePointer = (void *)address;
        found->hostPointer = range.kind == HOST ? (void *)address : NULL;
    } else {
        found->type = UNREGISTERED;
        found->device = -2; // cudaInvalidDeviceId
        found->hostPointer = (void *)address;
    }
    return SUCCESS;
}

// Copy, and wait for it. Unified addressing makes the direction unnecessary.
API int cudaMemcpy(void *to, const void *from, size_t bytes, int direction) {
    (void)direction;
    vn_synchronize();
    return failed(vn_copy(to, from, bytes));
}

// Copy when the stream comes to it. A copy that is captured is not done.
API int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int direction, void *stream) {
    (void)direction;
    vn_work(stream);
    return failed(vn_capture_of(stream, NULL) ? SUCCESS : vn_copy(to, from, bytes));
}

// Copy from one GPU to another.
API int cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, void *stream) {
    (void)to_device, (void)from_device;
    return cudaMemcpyAsync(to, from, bytes, 4, stream);
}

// Copy rows of `width` bytes, which begin `pitch` bytes after each other.
API int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                          size_t height, int direction, void *stream) {
    if (width > to_pitch || width > from_pitch) return failed(INVALID_VALUE);
    int status = SUCCESS;
    for (size_t row = 0; row < height && !status; row++)
        status = cudaMemcpyAsync((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width,
                                 direction, stream);
    return status;
}

// Set bytes.
API int cudaMemset(void *to, int value, size_t bytes) { return failed(vn_set(to, value, 1, bytes)); }

// Set bytes when the stream comes to it.
API int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream) {
    vn_work(stream);
    return vn_capture_of(stream, NULL) ? SUCCESS : cudaMemset(to, value, bytes);
}

// ---- memory of another process: the addresses are counted there, its values stay there ----

typedef struct {
    int process, device;
    uintptr_t start;
    size_t bytes;
    char rest[64 - 24];
} cudaIpcMemHandle_t;

// A handle of the allocation that an address lies in, for other processes.
API int cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *address) {
    vn_range_t range;
    if (!vn_find(address, &range) || range.kind != DEVICE) return failed(INVALID_VALUE);
    memset(handle, 0, sizeof *handle);
    *handle = (cudaIpcMemHandle_t){(int)getpid(), range.device, range.start, range.bytes, {0}};
    return SUCCESS;
}

// Map another process's allocation: addresses, but no memory of this process.
API int cudaIpcOpenMemHandle(void **address, cudaIpcMemHandle_t handle, unsigned flags) {
    (void)flags;
    if (handle.process == (int)getpid()) return failed(INVALID_HANDLE); // must be another's
    COUNT(ASSUMED, "values", "of another process: read as zeros");
    return failed(vn_allocate(vn_device, handle.bytes, POOL, address));
}

// Undo that.
API int cudaIpcCloseMemHandle(void *address) { return failed(vn_free(address, POOL)); }
