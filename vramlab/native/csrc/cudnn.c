// cuDNN. Source: NVIDIA's cuDNN backend API reference.
//
// Which engine computes a convolution and what workspace it wants, cuDNN's own library answers
// where VRAMLAB_NATIVE_CUDNN names it: since 9.8 it takes a description of a GPU
// (VRAMLAB_NATIVE_CUDNN_GPU, JSON) in place of a handle ("deviceless ahead-of-time compilation").
// Its descriptors are passed on; nothing is executed.
#define _GNU_SOURCE
#include "core/core.h"
#include "cudnn.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef CUDNN_VERSION
#define CUDNN_VERSION 90000 // where PyTorch's wheel does not say which it is for
#endif

enum { HEURISTICS = 4, PLAN = 5, GPU_PROPERTIES = 38 };                   // kinds of descriptors
enum { HANDLE_TYPE = 0, DESCRIPTOR_TYPE = 15, CHARACTERS = 24 };          // types of attributes
enum { HEURISTICS_GPU = 204, PLAN_HANDLE = 400, PLAN_GPU = 407, GPU_JSON = 2702 }; // attributes

static struct {
    int (*create)(int, void **);
    int (*set)(void *, int, int, int64_t, const void *);
    int (*get)(void *, int, int, int64_t, int64_t *, void *);
    int (*finalize)(void *);
    int (*destroy)(void *);
    size_t (*version)(void);
} real;
static void *gpu; // the descriptor of the GPU, once it could be made
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_real(void) {
    const char *path = getenv("VRAMLAB_NATIVE_CUDNN"), *json = getenv("VRAMLAB_NATIVE_CUDNN_GPU");
    void *library = path && *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (path && *path && !library) fprintf(stderr, "vramlab: cuDNN cannot be asked: %s\n", dlerror());
    if (!library || !json) return;
    *(void **)&real.create = dlsym(library, "cudnnBackendCreateDescriptor");
    *(void **)&real.set = dlsym(library, "cudnnBackendSetAttribute");
    *(void **)&real.get = dlsym(library, "cudnnBackendGetAttribute");
    *(void **)&real.finalize = dlsym(library, "cudnnBackendFinalize");
    *(void **)&real.destroy = dlsym(library, "cudnnBackendDestroyDescriptor");
    *(void **)&real.version = dlsym(library, "cudnnGetVersion");
    int complete = real.create && real.set && real.get && real.finalize && real.destroy;
    if (complete && !real.create(GPU_PROPERTIES, &gpu) &&
        !real.set(gpu, GPU_JSON, CHARACTERS, (int64_t)strlen(json), json) && !real.finalize(gpu))
        return;
    fprintf(stderr, "vramlab: this cuDNN cannot be asked without a GPU (it takes 9.8 or later)\n");
    memset(&real, 0, sizeof real);
}

static int is_open(void) {
    pthread_once(&once, open_real);
    return real.create != NULL;
}

// ---- kinds of descriptors, by their addresses, in a table with open addressing ----

static struct {
    void *descriptor;
    int kind;
} *kinds;
static size_t kinds_room, kinds_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t place_of(void *descriptor) {
    size_t at = ((uintptr_t)descriptor >> 4) * 0x9E3779B97F4A7C15u & (kinds_room - 1);
    while (kinds[at].descriptor && kinds[at].descriptor != descriptor) at = (at + 1) & (kinds_room - 1);
    return at;
}

// Entries stay when a descriptor goes: its address comes again with another kind.
static void remember(void *descriptor, int kind) {
    pthread_mutex_lock(&lock);
    if (2 * kinds_count >= kinds_room) {
        typeof(kinds) old = kinds;
        size_t old_room = kinds_room;
        kinds_room = old_room ? 2 * old_room : 1024;
        kinds = calloc(kinds_room, sizeof *kinds);
        for (size_t i = 0; i < old_room; i++)
            if (old[i].descriptor) kinds[place_of(old[i].descriptor)] = old[i];
        free(old);
    }
    size_t at = place_of(descriptor);
    if (!kinds[at].descriptor) kinds_count++;
    kinds[at].descriptor = descriptor;
    kinds[at].kind = kind;
    pthread_mutex_unlock(&lock);
}

static int kind_of(void *descriptor) {
    pthread_mutex_lock(&lock);
    int kind = kinds_room ? kinds[place_of(descriptor)].kind : 0;
    pthread_mutex_unlock(&lock);
    return kind;
}

// ---- the backend API ----

API int cudnnBackendCreateDescriptor(int kind, void **descriptor) {
    if (!is_open()) {
        COUNT(REFUSED, "libcudnn", "cuDNN's own library is not here: `vramlab native setup --cudnn`");
        return CUDNN_NOT_SUPPORTED;
    }
    int status = real.create(kind, descriptor);
    if (!status) remember(*descriptor, kind);
    return status;
}

// Where a program gives the handle of a GPU, the plan gets the description of one.
API int cudnnBackendSetAttribute(void *descriptor, int attribute, int type, int64_t count, const void *values) {
    if (!is_open()) return CUDNN_NOT_SUPPORTED;
    if (type != HANDLE_TYPE) return real.set(descriptor, attribute, type, count, values);
    return attribute == PLAN_HANDLE ? real.set(descriptor, PLAN_GPU, DESCRIPTOR_TYPE, 1, &gpu) : 0;
}
API int cudnnBackendGetAttribute(void *descriptor, int attribute, int type, int64_t wanted, int64_t *count, void *values) {
    return is_open() ? real.get(descriptor, attribute, type, wanted, count, values) : CUDNN_NOT_SUPPORTED;
}
API int cudnnBackendFinalize(void *descriptor) {
    if (!is_open()) return CUDNN_NOT_SUPPORTED;
    if (kind_of(descriptor) == HEURISTICS) real.set(descriptor, HEURISTICS_GPU, DESCRIPTOR_TYPE, 1, &gpu);
    return real.finalize(descriptor);
}
API int cudnnBackendDestroyDescriptor(void *descriptor) { return is_open() ? real.destroy(descriptor) : 0; }
API int cudnnBackendExecute(void **handle, void *plan, void *variants) {
    (void)plan, (void)variants;
    COUNT(COMPUTES, "libcudnn", "cudnnBackendExecute");
    vn_work(*handle);
    return 0;
}

// ---- versions and handles ----

// The version that answers; without it, the one that PyTorch is for.
API size_t cudnnGetVersion(void) {
    is_open();
    return real.version ? real.version() : CUDNN_VERSION;
}
API size_t cudnnGetCudartVersion(void) { return CUDA_VERSION; }
API int cudnnGetProperty(int which, int *value) { // 0 major, 1 minor, 2 patch
    size_t version = cudnnGetVersion();
    *value = (int)(which == 0 ? version / 10000 : which == 1 ? version / 100 % 100 : version % 100);
    return 0;
}
API const char *cudnnGetErrorString(int status) {
    if (status == CUDNN_SUCCESS) return "CUDNN_STATUS_SUCCESS";
    if (status != CUDNN_NOT_SUPPORTED) return "an error of cuDNN";
    return "CUDNN_STATUS_NOT_SUPPORTED (vramlab's substitute; its report names the function)";
}
API void cudnnGetLastErrorString(char *text, size_t bytes) {
    if (bytes) text[0] = 0;
}
typedef struct {
    void *stream;
    int device;
} handle_t;

// A handle keeps its stream, and takes memory of the GPU.
API int cudnnCreate(handle_t **handle) {
    if (vn_load_handle(vn_device, CUDNN)) return CUDNN_ALLOC_FAILED;
    *handle = calloc(1, sizeof **handle);
    if (!*handle) return CUDNN_ALLOC_FAILED;
    (*handle)->device = vn_device;
    return 0;
}
API int cudnnDestroy(handle_t *handle) {
    if (handle) vn_unload_handle(handle->device, CUDNN);
    free(handle);
    return 0;
}
API int cudnnSetStream(handle_t *handle, void *stream) {
    handle->stream = stream;
    return 0;
}
API int cudnnGetStream(handle_t *handle, void **stream) {
    *stream = handle->stream;
    return 0;
}

// ---- descriptors of the older API: only kernels would read what they are told ----

#define DESCRIPTOR(name)                                                                     \
    API int cudnnCreate##name##Descriptor(void **descriptor) {                               \
        *descriptor = calloc(1, sizeof(cudnn_tensor_t));                                     \
        return *descriptor ? 0 : CUDNN_BAD_PARAM;                                            \
    }                                                                                        \
    API int cudnnDestroy##name##Descriptor(void *descriptor) {                               \
        free(descriptor);                                                                    \
        return 0;                                                                            \
    }
DESCRIPTOR(Tensor)
DESCRIPTOR(Filter)
DESCRIPTOR(Activation)
DESCRIPTOR(Convolution)
DESCRIPTOR(Pooling)
DESCRIPTOR(SpatialTransformer)

// Batch normalization's workspace and reserve: none, as the H200's recording shows for contiguous
// images (assets/recordings/h200-torch2.11.0.json, resnet50). Channels last is not known.
#define ASSUME_NONE COUNT(ASSUMED, "libcudnn", "batch normalization needs no workspace")
API int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int ops, void *x, void *z, void *y,
                                                                 void *scale, void *activation, size_t *bytes) {
    (void)handle, (void)mode, (void)ops, (void)x, (void)z, (void)y, (void)scale, (void)activation;
    ASSUME_NONE;
    *bytes = 0;
    return 0;
}
API int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int ops, void *activation, void *x,
                                                             size_t *bytes) {
    (void)handle, (void)mode, (void)ops, (void)activation, (void)x;
    ASSUME_NONE;
    *bytes = 0;
    return 0;
}
API int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int ops, void *x, void *y, void *dy,
                                                          void *dz, void *dx, void *scale, void *activation, size_t *bytes) {
    (void)handle, (void)mode, (void)ops, (void)x, (void)y, (void)dy, (void)dz, (void)dx, (void)scale, (void)activation;
    ASSUME_NONE;
    *bytes = 0;
    return 0;
}
