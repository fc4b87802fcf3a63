// NVML. Source: NVIDIA's NVML API reference. It sees what this process has of the GPUs.
#include "core/core.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { INVALID_ARGUMENT = 2, UNSUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NO_DRIVER = 9 }; // nvmlReturn_t

static char devices[MAX_DEVICES]; // their addresses are the handles
static int ordinal(void *handle) {
    long at = (char *)handle - devices;
    return at >= 0 && at < vn_gpu()->count ? (int)at : -1;
}

// NVML counts every GPU, whatever CUDA_VISIBLE_DEVICES says.
API int nvmlInit_v2(void) { return vn_gpu()->count ? 0 : NO_DRIVER; }
API int nvmlInit(void) { return nvmlInit_v2(); }
API int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return nvmlInit_v2();
}
API int nvmlShutdown(void) { return 0; }
API const char *nvmlErrorString(int error) {
    return error == 0             ? "Success"
           : error == UNSUPPORTED ? "Not Supported"
           : error == NO_DRIVER   ? "Driver Not Loaded"
                                  : "Unknown Error";
}
API int nvmlSystemGetDriverVersion(char *text, unsigned length) { // no driver answers here
    snprintf(text, length, "none (vramlab native)");
    return 0;
}
API int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = CUDA_VERSION;
    return 0;
}
API int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }
API int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)vn_gpu()->count;
    return 0;
}
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if (index >= (unsigned)vn_gpu()->count) return INVALID_ARGUMENT;
    *handle = &devices[index];
    return 0;
}
API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **handle) { // 00000000:BUS:00.0
    unsigned domain, bus;
    if (sscanf(id, "%x:%x:", &domain, &bus) != 2 || bus < 1) return INVALID_ARGUMENT;
    return nvmlDeviceGetHandleByIndex_v2(bus - 1, handle) ? NOT_FOUND : 0;
}
API int nvmlDeviceGetIndex(void *handle, unsigned *index) {
    *index = (unsigned)ordinal(handle);
    return ordinal(handle) < 0 ? INVALID_ARGUMENT : 0;
}
API int nvmlDeviceGetName(void *handle, char *name, unsigned length) {
    snprintf(name, length, "%s", vn_gpu()->name);
    return ordinal(handle) < 0 ? INVALID_ARGUMENT : 0;
}
API int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    snprintf(text, length, "GPU-7672616d-6c61-6220-6e61-7469766520%02d", ordinal(handle));
    return ordinal(handle) < 0 ? INVALID_ARGUMENT : 0;
}

// Total, free and used bytes; version 2 tells apart what the driver keeps.
API int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long memory[3]) {
    if (ordinal(handle) < 0) return INVALID_ARGUMENT;
    unsigned long long total = (unsigned long long)vn_gpu()->nvml_total_bytes;
    unsigned long long reserved = total - (unsigned long long)vn_gpu()->total_bytes;
    memory[0] = total;
    memory[2] = vn_device_used(ordinal(handle)) + reserved;
    memory[1] = total - memory[2];
    return 0;
}
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2_t;
API int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2_t *memory) {
    if (ordinal(handle) < 0) return INVALID_ARGUMENT;
    memory->total = (unsigned long long)vn_gpu()->nvml_total_bytes;
    memory->reserved = memory->total - (unsigned long long)vn_gpu()->total_bytes;
    memory->used = vn_device_used(ordinal(handle));
    memory->free = memory->total - memory->reserved - memory->used;
    return 0;
}
API int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    *major = (int)vn_gpu()->major, *minor = (int)vn_gpu()->minor;
    return ordinal(handle) < 0 ? INVALID_ARGUMENT : 0;
}

// Processes with a context on the GPU: this one, if it has. Each entry begins with its number and,
// 8 bytes on, its memory; from version 2 on there are instances of MIG after them, which are none.
static int processes(void *handle, unsigned *count, void *entries, size_t entry_bytes) {
    if (ordinal(handle) < 0) return INVALID_ARGUMENT;
    unsigned room = *count;
    unsigned long long used = vn_device_used(ordinal(handle));
    *count = used > 0;
    if (!used) return 0;
    if (!room || !entries) return INSUFFICIENT_SIZE;
    for (size_t i = 0; i < entry_bytes; i++) ((char *)entries)[i] = i < 16 ? 0 : (char)0xFF;
    *(unsigned *)entries = (unsigned)getpid();
    ((unsigned long long *)entries)[1] = used;
    return 0;
}
API int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, void *entries) {
    return processes(handle, count, entries, 16);
}
API int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, void *entries) {
    return processes(handle, count, entries, 24);
}
API int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, void *entries) {
    return processes(handle, count, entries, 24);
}

// No GPU here is part of a fabric (state 0). The version's lower 24 bits are the struct's size.
API int nvmlDeviceGetGpuFabricInfoV(void *handle, unsigned *info) {
    size_t bytes = *info & 0xFFFFFF;
    if (ordinal(handle) < 0 || bytes < sizeof *info) return INVALID_ARGUMENT;
    memset(info + 1, 0, bytes - sizeof *info);
    return 0;
}
