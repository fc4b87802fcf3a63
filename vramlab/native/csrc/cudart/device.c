// CUDA Runtime API, "Device Management", "Peer Device Memory Access", "Occupancy".
#include "cudart.h"
#include "properties.h"

#include <stdio.h>
#include <string.h>

// How many GPUs there are; cudaErrorNoDevice where there is none.
API int cudaGetDeviceCount(int *count) {
    *count = vn_device_count();
    return failed(*count ? SUCCESS : NO_DEVICE);
}

// The thread's current GPU.
API int cudaGetDevice(int *device) {
    *device = vn_device;
    return failed(vn_device_count() ? SUCCESS : NO_DEVICE);
}

// Make a GPU the thread's current one; since CUDA 12 this makes its context as well.
API int cudaSetDevice(int device) {
    int status = vn_use_device(device);
    if (!status) vn_device = device;
    return failed(status);
}

// Wait until a GPU has done all its work.
API int cudaDeviceSynchronize(void) {
    int status = vn_wait_for_device(vn_device);
    if (status) return failed(status);
    vn_synchronize();
    return failed(vn_use_device(vn_device));
}

// One attribute of a GPU.
API int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    return failed(vn_attribute(attribute, device, value));
}

// What a GPU is like. Limits of textures and surfaces, which PyTorch does not use, stay 0.
API int cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    const vn_gpu_t *g = vn_gpu();
    if (device < 0 || device >= vn_device_count()) return failed(INVALID_DEVICE);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", g->name);
    snprintf(p->uuid, sizeof p->uuid, "vramlab native%c", '0' + device);
    p->totalGlobalMem = (size_t)g->total_bytes;
    p->sharedMemPerBlock = (size_t)g->shared_memory_per_block_bytes;
    p->sharedMemPerBlockOptin = (size_t)g->shared_memory_per_block_optin_bytes;
    p->sharedMemPerMultiprocessor = (size_t)g->shared_memory_per_multiprocessor_bytes;
    p->reservedSharedMemPerBlock = g->major >= 8 ? 1024 : 0;
    p->regsPerBlock = p->regsPerMultiprocessor = (int)g->registers_per_multiprocessor;
    p->warpSize = (int)g->warp_size;
    p->memPitch = 2147483647;
    p->maxThreadsPerBlock = (int)g->max_threads_per_block;
    memcpy(p->maxThreadsDim, (int[]){1024, 1024, 64}, sizeof p->maxThreadsDim);
    memcpy(p->maxGridSize, (int[]){2147483647, 65535, 65535}, sizeof p->maxGridSize);
    p->totalConstMem = 65536;
    p->major = (int)g->major;
    p->minor = (int)g->minor;
    p->textureAlignment = 512;
    p->multiProcessorCount = (int)g->multiprocessors;
    p->maxThreadsPerMultiProcessor = (int)g->max_threads_per_multiprocessor;
    p->maxBlocksPerMultiProcessor = (int)g->max_blocks_per_multiprocessor;
    p->l2CacheSize = (int)g->l2_cache_bytes;
    p->memoryBusWidth = (int)g->memory_bus_width_bits;
    ONLY_12(p->clockRate = (int)g->clock_rate_khz; p->memoryClockRate = (int)g->memory_clock_rate_khz;)
    ONLY_12(p->deviceOverlap = 1;)
    p->pciBusID = device + 1;
    p->asyncEngineCount = 3;
    p->clusterLaunch = g->major >= 9;
    p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->managedMemory = 1;
    p->streamPrioritiesSupported = p->globalL1CacheSupported = p->localL1CacheSupported = 1;
    p->concurrentManagedAccess = p->computePreemptionSupported = p->cooperativeLaunch = 1;
    p->hostRegisterSupported = p->memoryPoolsSupported = p->ipcEventSupported = 1;
    return SUCCESS;
}

// The name under which CUDA 12 exports it.
API int cudaGetDeviceProperties_v2(cudaDeviceProp *p, int device) { return cudaGetDeviceProperties(p, device); }

// domain:bus:device.function, in hexadecimal digits.
API int cudaDeviceGetPCIBusId(char *text, int length, int device) {
    if (device < 0 || device >= vn_device_count()) return failed(INVALID_DEVICE);
    snprintf(text, (size_t)length, "00000000:%02X:00.0", device + 1);
    return SUCCESS;
}

// Priorities of streams: lowest, highest (a lower number is a higher priority).
API int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return SUCCESS;
}

// Whether a GPU can read another one's memory: any two can here, but not itself.
API int cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    int count = vn_device_count();
    if (device < 0 || peer < 0 || device >= count || peer >= count) return failed(INVALID_DEVICE);
    *can = device != peer;
    return SUCCESS;
}

static char peers[MAX_DEVICES][MAX_DEVICES];

// Let the current GPU read another one's memory; an error when it may already.
API int cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    if (flags || peer == vn_device) return failed(INVALID_VALUE);
    if (peer < 0 || peer >= vn_device_count()) return failed(INVALID_DEVICE);
    if (peers[vn_device][peer]) return failed(PEER_ACCESS_ALREADY_ENABLED);
    peers[vn_device][peer] = 1;
    return SUCCESS;
}

// Undo that.
API int cudaDeviceDisablePeerAccess(int peer) {
    if (peer < 0 || peer >= vn_device_count()) return failed(INVALID_DEVICE);
    if (!peers[vn_device][peer]) return failed(PEER_ACCESS_NOT_ENABLED);
    peers[vn_device][peer] = 0;
    return SUCCESS;
}

// How many blocks of a kernel one multiprocessor keeps resident.
API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int threads, size_t shared) {
    (void)kernel;
    *blocks = vn_occupancy(threads, shared);
    return SUCCESS;
}

// The same; the flags are about caching in L1.
API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *kernel, int threads,
                                                               size_t shared, unsigned flags) {
    (void)flags;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared);
}
