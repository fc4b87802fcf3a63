// The CUDA driver. Source of every contract here: NVIDIA's CUDA Driver API reference.
#include "core/core.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- initialization, version, errors ----

// Must come first; there must be a GPU.
API int cuInit(unsigned flags) { return flags ? INVALID_VALUE : vn_device_count() ? SUCCESS : NO_DEVICE; }

// The CUDA version that the driver supports, 1000 * major + 10 * minor.
API int cuDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return SUCCESS;
}

// The name of an error, and what it means.
API int cuGetErrorName(int error, const char **name) {
    *name = error == SUCCESS         ? "CUDA_SUCCESS"
            : error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED"
            : error == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
                                     : "CUDA_ERROR";
    return SUCCESS;
}
API int cuGetErrorString(int error, const char **text) {
    *text = error == SUCCESS         ? "no error"
            : error == OUT_OF_MEMORY ? "out of memory"
            : error == NOT_SUPPORTED ? "operation not supported (vramlab's substitute has no meaning for it)"
            : error == INVALID_VALUE ? "invalid argument"
                                     : "an error of vramlab's substitute for the driver";
    return SUCCESS;
}

// The driver's log messages. PyTorch listens to them since 2.15; there are none.
API int cuLogsRegisterCallback(void *callback, void *data, void **handle) {
    (void)data;
    *handle = callback;
    return SUCCESS;
}
API int cuLogsUnregisterCallback(void *handle) {
    (void)handle;
    return SUCCESS;
}

// Tables of functions that no reference describes. NVRTC looks for a cache of code in them, and
// compiles where there is none.
API int cuGetExportTable(const void **table, const void *id) {
    (void)id;
    *table = NULL;
    return NOT_SUPPORTED;
}

// ---- devices and contexts; a context is its GPU's primary one ----

static char contexts[MAX_DEVICES]; // their addresses are the handles

static void *context_of(int device) { return &contexts[device]; }
static int known(int device) { return device >= 0 && device < vn_device_count(); }

API int cuDeviceGetCount(int *count) {
    *count = vn_device_count();
    return SUCCESS;
}
API int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return known(ordinal) ? SUCCESS : INVALID_DEVICE;
}
API int cuDeviceGetAttribute(int *value, int attribute, int device) { return vn_attribute(attribute, device, value); }
API int cuDeviceGetName(char *name, int length, int device) {
    if (!known(device) || length < 1) return INVALID_VALUE;
    strncpy(name, vn_gpu()->name, (size_t)length - 1);
    name[length - 1] = 0;
    return SUCCESS;
}
API int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = (size_t)vn_gpu()->total_bytes;
    return known(device) ? SUCCESS : INVALID_DEVICE;
}

// Whether the primary context is made: since cudaSetDevice makes it, always.
API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = 1;
    return known(device) ? SUCCESS : INVALID_DEVICE;
}
API int cuDevicePrimaryCtxRetain(void **context, int device) {
    int status = vn_use_device(device);
    if (!status) *context = context_of(device);
    return status;
}
API int cuDevicePrimaryCtxRelease_v2(int device) { return known(device) ? SUCCESS : INVALID_DEVICE; }

// The thread's current context, which the runtime calls its current device.
API int cuCtxGetCurrent(void **context) {
    *context = context_of(vn_device);
    return SUCCESS;
}
API int cuCtxSetCurrent(void *context) {
    long device = (char *)context - contexts;
    if (!context) return SUCCESS; // detaches; the next call attaches the primary one again
    if (device < 0 || device >= vn_device_count()) return INVALID_VALUE;
    vn_device = (int)device;
    return SUCCESS;
}
API int cuCtxGetDevice(int *device) {
    *device = vn_device;
    return SUCCESS;
}
static _Thread_local int pushed[64], depth;
API int cuCtxPushCurrent_v2(void *context) {
    if (depth == 64) return INVALID_VALUE;
    pushed[depth++] = vn_device;
    return cuCtxSetCurrent(context);
}
API int cuCtxPopCurrent_v2(void **context) {
    if (!depth) return INVALID_VALUE;
    if (context) *context = context_of(vn_device);
    vn_device = pushed[--depth];
    return SUCCESS;
}
API int cuCtxPushCurrent(void *context) { return cuCtxPushCurrent_v2(context); } // the old names
API int cuCtxPopCurrent(void **context) { return cuCtxPopCurrent_v2(context); }
API int cuCtxSynchronize(void) {
    vn_synchronize();
    return SUCCESS;
}
API int cuStreamGetCtx(void *stream, void **context) {
    *context = context_of(vn_stream_device(stream));
    return SUCCESS;
}

// ---- virtual memory: addresses, memory, and bringing both together ----

typedef struct { // CUmemAllocationProp begins like this
    int type, requested_handle_types, location_type, device;
} properties_t;

typedef struct {
    properties_t properties;
    size_t bytes;
    int references; // handles and mappings
} physical_t;

static void release(void *handle) {
    physical_t *memory = handle;
    if (__atomic_sub_fetch(&memory->references, 1, __ATOMIC_ACQ_REL)) return;
    vn_give_physical(memory->properties.device, memory->bytes);
    free(memory);
}

// Sizes and addresses are multiples of it: 2 MiB on all GPUs so far.
API int cuMemGetAllocationGranularity(size_t *bytes, const properties_t *properties, int which) {
    (void)properties, (void)which;
    *bytes = 2 * MIB;
    return SUCCESS;
}

// Addresses without memory.
API int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted, uint64_t flags) {
    void *start;
    (void)alignment, (void)wanted;
    if (!bytes || bytes % (2 * MIB) || flags) return INVALID_VALUE;
    int status = vn_reserve(vn_device, bytes, &start);
    if (!status) *address = (uint64_t)(uintptr_t)start;
    return status;
}
API int cuMemAddressFree(uint64_t address, size_t bytes) {
    (void)bytes;
    return vn_unreserve((void *)(uintptr_t)address);
}

// Memory without addresses.
API int cuMemCreate(physical_t **handle, size_t bytes, const properties_t *properties, uint64_t flags) {
    if (!bytes || bytes % (2 * MIB) || flags || properties->location_type != 1) return INVALID_VALUE;
    int status = vn_take_physical(properties->device, bytes);
    if (status) return status;
    *handle = malloc(sizeof **handle);
    **handle = (physical_t){*properties, bytes, 1};
    return SUCCESS;
}

// Memory goes back when it is released and mapped nowhere.
API int cuMemRelease(physical_t *handle) {
    release(handle);
    return SUCCESS;
}
API int cuMemMap(uint64_t address, size_t bytes, size_t offset, physical_t *handle, uint64_t flags) {
    if (offset || flags || bytes > handle->bytes) return INVALID_VALUE;
    int status = vn_map((void *)(uintptr_t)address, bytes, handle->properties.device, handle);
    if (!status) __atomic_add_fetch(&handle->references, 1, __ATOMIC_ACQ_REL);
    return status;
}
API int cuMemUnmap(uint64_t address, size_t bytes) { return vn_unmap((void *)(uintptr_t)address, bytes, release); }

// Who may use mapped memory: everybody here.
API int cuMemSetAccess(uint64_t address, size_t bytes, const void *accesses, size_t count) {
    (void)address, (void)bytes, (void)accesses, (void)count;
    return SUCCESS;
}

// The handle of mapped memory, once more.
API int cuMemRetainAllocationHandle(physical_t **handle, void *address) {
    vn_range_t range;
    if (!vn_find(address, &range) || range.kind != MAPPED) return INVALID_VALUE;
    *handle = range.handle;
    __atomic_add_fetch(&(*handle)->references, 1, __ATOMIC_ACQ_REL);
    return SUCCESS;
}
API int cuMemGetAllocationPropertiesFromHandle(properties_t *properties, physical_t *handle) {
    *properties = handle->properties;
    return SUCCESS;
}

// ---- what an address is ----

// The allocation that an address lies in.
API int cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t address) {
    vn_range_t range;
    if (!vn_find((void *)(uintptr_t)address, &range)) return INVALID_VALUE;
    if (base) *base = range.start;
    if (bytes) *bytes = range.bytes;
    return SUCCESS;
}

// CUpointer_attribute: 1 context, 2 memory type (1 host, 2 device), 3 device's address, 4 host's,
// 8 is managed, 9 device, 11 start of the range, 12 its bytes.
API int cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
    vn_range_t range;
    if (!vn_find((void *)(uintptr_t)address, &range)) return INVALID_VALUE;
    switch (attribute) {
    case 1: *(void **)value = context_of(range.device); break;
    case 2: *(unsigned *)value = range.kind == HOST ? 1 : 2; break;
    case 3: *(uint64_t *)value = address; break;
    case 4:
        if (range.kind != HOST) return INVALID_VALUE;
        *(uint64_t *)value = address;
        break;
    case 6: *(unsigned *)value = 0; break; // synchronous copies: not asked for
    case 8: *(unsigned *)value = 0; break;
    case 9: *(int *)value = range.device; break;
    case 11: *(uint64_t *)value = range.start; break;
    case 12: *(size_t *)value = range.bytes; break;
    default: COUNT(REFUSED, "libcuda.so.1", "cuPointerGetAttribute: one that is not known"); return INVALID_VALUE;
    }
    return SUCCESS;
}

// ---- copies and sets ----

API int cuMemcpy(uint64_t to, uint64_t from, size_t bytes) { return vn_copy((void *)to, (void *)from, bytes); }
API int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    vn_work(stream);
    return vn_capture_of(stream, NULL) ? SUCCESS : vn_copy((void *)to, (void *)from, bytes);
}
API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    return cuMemcpyAsync(to, (uint64_t)(uintptr_t)from, bytes, stream);
}
API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    vn_synchronize();
    return vn_copy(to, (void *)from, bytes);
}
API int cuMemsetD32Async(uint64_t to, unsigned value, size_t count, void *stream) {
    vn_work(stream);
    return vn_capture_of(stream, NULL) ? SUCCESS : vn_set((void *)to, (int)value, 4, count);
}
API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, void *stream) {
    vn_work(stream);
    return vn_capture_of(stream, NULL) ? SUCCESS : vn_set((void *)to, value, 1, count);
}

// Write a value when the stream comes to it.
API int cuStreamWriteValue32_v2(void *stream, uint64_t address, unsigned value, unsigned flags) {
    (void)flags;
    vn_work(stream);
    return vn_copy((void *)address, &value, 4);
}

// ---- modules and kernels; of their code, the size alone counts ----

static int new_handle(void **handle) {
    *handle = calloc(1, 16);
    return *handle ? SUCCESS : OUT_OF_MEMORY;
}
API int cuModuleLoad(void **module, const char *path) { return access(path, R_OK) ? 301 : new_handle(module); }
API int cuModuleLoadData(void **module, const void *image) {
    if (!image) return INVALID_VALUE;
    int status = vn_load_image(vn_device, image);
    return status ? status : new_handle(module);
}
API int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    return cuModuleLoadData(module, image);
}
API int cuModuleLoadFatBinary(void **module, const void *image) { return cuModuleLoadData(module, image); }
API int cuModuleUnload(void *module) {
    free(module);
    return SUCCESS;
}
API int cuModuleGetFunction(void **function, void *module, const char *name) {
    return module && name ? new_handle(function) : INVALID_VALUE;
}
API int cuLibraryLoadData(void **library, const void *image, int *a, void **b, unsigned c, int *d, void **e, unsigned f) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    return cuModuleLoadData(library, image);
}
API int cuLibraryUnload(void *library) { return cuModuleUnload(library); }
API int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
    return cuModuleGetFunction(kernel, library, name);
}
API int cuKernelGetFunction(void **function, void *kernel) {
    *function = kernel;
    return SUCCESS;
}

// CUfunction_attribute: 0 threads in a block, 1 static shared memory, 3 local memory, 4 registers,
// 5 and 6 PTX's and the code's version, 8 dynamic shared memory.
API int cuFuncGetAttribute(int *value, int attribute, void *function) {
    const vn_gpu_t *gpu = vn_gpu();
    (void)function;
    switch (attribute) {
    case 0: *value = (int)gpu->max_threads_per_block; break;
    case 4: *value = 32; break;
    case 5: case 6: *value = (int)(10 * gpu->major + gpu->minor); break;
    case 8: *value = (int)gpu->shared_memory_per_block_bytes; break;
    default: *value = 0; break; // none used: constant, local, static shared memory, clusters
    }
    return SUCCESS;
}
API int cuFuncSetAttribute(void *function, int attribute, int value) {
    (void)function;
    return attribute == 8 && value > vn_gpu()->shared_memory_per_block_optin_bytes ? INVALID_VALUE : SUCCESS;
}
API int cuKernelGetAttribute(int *value, int attribute, void *kernel, int device) {
    (void)device;
    return cuFuncGetAttribute(value, attribute, kernel);
}
API int cuKernelSetAttribute(int attribute, int value, void *kernel, int device) {
    (void)device;
    return cuFuncSetAttribute(kernel, attribute, value);
}
API int cuFuncSetCacheConfig(void *function, int configuration) {
    (void)function, (void)configuration;
    return SUCCESS;
}
API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
    (void)function;
    *blocks = vn_occupancy(threads, shared);
    return SUCCESS;
}
API int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, void *stream, void **parameters, void **extra) {
    (void)function, (void)shared, (void)parameters, (void)extra;
    unsigned long threads = (unsigned long)bx * by * bz;
    if (!gx || !gy || !gz || !threads || threads > (unsigned long)vn_gpu()->max_threads_per_block) return INVALID_VALUE;
    vn_work(stream);
    return SUCCESS;
}
API int cuLaunchCooperativeKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                  unsigned bz, unsigned shared, void *stream, void **parameters) {
    return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, NULL);
}

typedef struct { // CUlaunchConfig begins like this
    unsigned gx, gy, gz, bx, by, bz, shared;
    void *stream;
} configuration_t;
API int cuLaunchKernelEx(const configuration_t *c, void *function, void **parameters, void **extra) {
    return cuLaunchKernel(function, c->gx, c->gy, c->gz, c->bx, c->by, c->bz, c->shared, c->stream, parameters, extra);
}

// A descriptor of a tensor for kernels; they alone read it.
API int cuTensorMapEncodeTiled(void *map) {
    memset(map, 0, 128);
    return SUCCESS;
}

// ---- streams and events, which are the runtime's ----

API int cuStreamCreate(void **stream, unsigned flags) {
    *stream = vn_stream_new(flags, 0);
    return SUCCESS;
}
API int cuStreamDestroy_v2(void *stream) { return vn_stream_delete(stream); }
API int cuStreamSynchronize(void *stream) {
    (void)stream;
    vn_synchronize();
    return SUCCESS;
}
API int cuEventCreate(void **event, unsigned flags) {
    *event = vn_event_new(flags);
    return SUCCESS;
}
API int cuEventDestroy_v2(void *event) {
    vn_event_delete(event);
    return SUCCESS;
}
API int cuEventRecord(void *event, void *stream) { return vn_event_record(event, stream); }
API int cuEventQuery(void *event) { return vn_event_query(event); }
API int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    (void)flags;
    vn_stream_wait(stream, event);
    return SUCCESS;
}
