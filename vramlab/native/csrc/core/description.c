// The GPUs that programs find, read from one environment variable.
//
// VRAMLAB_NATIVE_GPU is `name=NVIDIA H200;count=1;total_bytes=...`: figures of vramlab's catalogue
// (vramlab/native/gpu.py writes it). Where a figure is missing there is no GPU.
#define _GNU_SOURCE
#include "core.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Thread_local int vn_device = 0;

static vn_gpu_t gpu;
static int visible;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define FIGURE(name) {#name, offsetof(vn_gpu_t, name)}
static const struct {
    const char *name;
    size_t offset;
} figures[] = {
    FIGURE(count), FIGURE(late), FIGURE(host_bytes), FIGURE(total_bytes),
    FIGURE(nvml_total_bytes), FIGURE(context_bytes), FIGURE(major), FIGURE(minor),
    FIGURE(multiprocessors), FIGURE(max_threads_per_multiprocessor),
    FIGURE(max_blocks_per_multiprocessor), FIGURE(max_threads_per_block), FIGURE(warp_size),
    FIGURE(registers_per_multiprocessor), FIGURE(shared_memory_per_multiprocessor_bytes),
    FIGURE(shared_memory_per_block_bytes), FIGURE(shared_memory_per_block_optin_bytes),
    FIGURE(l2_cache_bytes), FIGURE(clock_rate_khz), FIGURE(memory_clock_rate_khz),
    FIGURE(memory_bus_width_bits), FIGURE(pci_device_id), FIGURE(first_kernel_bytes),
    FIGURE(code_room_bytes), FIGURE(stream_bytes), FIGURE(cublas_handle_bytes), FIGURE(cublas_code_bytes),
    FIGURE(cudnn_handle_bytes), FIGURE(cudnn_code_bytes),
};
enum { FIGURES = sizeof figures / sizeof *figures };

// The text after `key=` up to the next `;`, with its length; NULL: it is not there.
static const char *value_of(const char *text, const char *key, size_t *length) {
    size_t key_length = strlen(key);
    while (text && *text) {
        const char *end = strchrnul(text, ';');
        if (!strncmp(text, key, key_length) && text[key_length] == '=') {
            *length = (size_t)(end - text) - key_length - 1;
            return text + key_length + 1;
        }
        text = *end ? end + 1 : end;
    }
    return NULL;
}

// As CUDA_VISIBLE_DEVICES says: ordinals count up to the first that is none (CUDA C++ Programming
// Guide, "CUDA Environment Variables"). Which of several equal GPUs they are makes no difference.
static int count_visible(long count) {
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    if (!wanted) return (int)count;
    int found = 0;
    while (*wanted) {
        char *end;
        long ordinal = strtol(wanted, &end, 10);
        if (end == wanted || ordinal < 0 || ordinal >= count || found == count) break;
        found++;
        wanted = *end == ',' ? end + 1 : end;
        if (*end && *end != ',') break;
    }
    return found;
}

static void read_description(void) {
    const char *text = getenv("VRAMLAB_NATIVE_GPU");
    size_t length;
    if (!text) return;
    for (size_t i = 0; i < FIGURES; i++) {
        const char *value = value_of(text, figures[i].name, &length);
        if (!value) {
            fprintf(stderr, "vramlab: VRAMLAB_NATIVE_GPU lacks %s: there is no GPU\n", figures[i].name);
            memset(&gpu, 0, sizeof gpu);
            return;
        }
        *(long *)((char *)&gpu + figures[i].offset) = strtol(value, NULL, 10);
    }
    const char *name = value_of(text, "name", &length);
    if (name) snprintf(gpu.name, sizeof gpu.name, "%.*s", (int)length, name);
    if (gpu.count > MAX_DEVICES) gpu.count = MAX_DEVICES;
    visible = count_visible(gpu.count);
}

const vn_gpu_t *vn_gpu(void) {
    pthread_once(&once, read_description);
    return &gpu;
}

int vn_device_count(void) {
    vn_gpu();
    return visible;
}

// cudaDeviceGetAttribute and cuDeviceGetAttribute: their enumerations agree in what is known here
// (CUDA Runtime API, cudaDeviceAttr; CUDA Driver API, CUdevice_attribute).
int vn_attribute(int attribute, int device, int *value) {
    const vn_gpu_t *g = vn_gpu();
    if (device < 0 || device >= vn_device_count()) return INVALID_DEVICE;
    switch (attribute) {
    case 1: *value = (int)g->max_threads_per_block; break;
    case 2: case 3: *value = 1024; break;              // block's x and y
    case 4: *value = 64; break;                        // block's z
    case 5: *value = 2147483647; break;                // grid's x
    case 6: case 7: *value = 65535; break;             // grid's y and z
    case 8: *value = (int)g->shared_memory_per_block_bytes; break;
    case 9: *value = 65536; break;                     // constant memory
    case 10: *value = (int)g->warp_size; break;
    case 11: *value = 2147483647; break;               // pitch of copies
    case 12: case 82: *value = (int)g->registers_per_multiprocessor; break;
    case 13: *value = (int)g->clock_rate_khz; break;
    case 14: *value = 512; break;                      // alignment of textures
    case 16: *value = (int)g->multiprocessors; break;
    case 15: case 19: case 31: *value = 1; break;      // overlap, mapped memory, concurrent kernels
    case 33: *value = device + 1; break;               // PCI bus
    case 36: *value = (int)g->memory_clock_rate_khz; break;
    case 37: *value = (int)g->memory_bus_width_bits; break;
    case 38: *value = (int)g->l2_cache_bytes; break;
    case 39: *value = (int)g->max_threads_per_multiprocessor; break;
    case 40: *value = 3; break;                        // copy engines
    case 41: *value = 1; break;                        // unified addresses
    case 75: *value = (int)g->major; break;
    case 76: *value = (int)g->minor; break;
    case 78: case 79: case 80: *value = 1; break;      // priorities, caching in L1
    case 81: *value = (int)g->shared_memory_per_multiprocessor_bytes; break;
    case 83: case 89: case 90: case 95: *value = 1; break; // managed, preemption, cooperative
    case 97: *value = (int)g->shared_memory_per_block_optin_bytes; break;
    case 99: *value = 1; break;                        // registers host memory
    case 102: case 103: *value = 1; break;             // driver: virtual memory, as descriptors
    case 106: *value = (int)g->max_blocks_per_multiprocessor; break;
    case 111: *value = g->major >= 8 ? 1024 : 0; break; // reserved shared memory
    case 115: *value = 1; break;                       // memory pools
    case 119: *value = 1; break;                       // their handles: POSIX descriptors
    case 120: *value = g->major >= 9; break;           // clusters
    // Not there: timeouts, integrated, compute modes, ECC, PCI device and domain, TCC, several
    // GPUs on a board, native atomics, pageable memory, RDMA, fabric handles, multicast.
    case 17: case 18: case 20: case 32: case 34: case 35: case 50: case 84: case 85: case 86:
    case 88: case 91: case 92: case 93: case 94: case 96: case 98: case 100: case 101: case 110: case 112:
    case 113: case 114: case 116: case 117: case 118: case 128: case 132:
        *value = 0;
        break;
    default: COUNT(REFUSED, "device attribute", "one that is not known"); return INVALID_VALUE;
    }
    return SUCCESS;
}

// Blocks that fit on a multiprocessor by their threads, shared memory and the limit of blocks.
// Registers are taken as 32 for a thread, which never binds before the threads do.
int vn_occupancy(int threads_per_block, size_t dynamic_shared_bytes) {
    const vn_gpu_t *g = vn_gpu();
    if (threads_per_block < 1 || threads_per_block > g->max_threads_per_block) return 0;
    if (dynamic_shared_bytes > (size_t)g->shared_memory_per_block_optin_bytes) return 0;
    long warps = (threads_per_block + g->warp_size - 1) / g->warp_size;
    long blocks = g->max_threads_per_multiprocessor / (warps * g->warp_size);
    if (blocks > g->max_blocks_per_multiprocessor) blocks = g->max_blocks_per_multiprocessor;
    if (dynamic_shared_bytes) {
        long reserved = g->major >= 8 ? 1024 : 0;
        long by_shared = g->shared_memory_per_multiprocessor_bytes / ((long)dynamic_shared_bytes + reserved);
        if (blocks > by_shared) blocks = by_shared;
    }
    return (int)blocks;
}
