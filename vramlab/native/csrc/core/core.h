// What the substitute libraries share: the described GPUs, their memory, streams, and the report.
//
// CUDA's runtime and driver number these errors alike (CUDA Runtime API and CUDA Driver API,
// "Data types used by CUDA"); functions here that answer an int answer one of them.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define MIB ((size_t)1 << 20)
#define MAX_DEVICES 16

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_HANDLE = 400,
    SYMBOL_NOT_FOUND = 500,
    NOT_READY = 600,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    PEER_ACCESS_NOT_ENABLED = 705,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
};

// ---- description.c: the GPUs, as VRAMLAB_NATIVE_GPU describes them ----

typedef struct {
    char name[128];  // the product's, such as "NVIDIA H200"
    long count;      // how many of them
    long late;       // 1: events complete when the program waits; 0: at once
    long host_bytes; // host memory that what lies on the GPUs may take
    long total_bytes, nvml_total_bytes, context_bytes;
    long major, minor, multiprocessors;
    long max_threads_per_multiprocessor, max_blocks_per_multiprocessor, max_threads_per_block;
    long warp_size, registers_per_multiprocessor;
    long shared_memory_per_multiprocessor_bytes, shared_memory_per_block_bytes;
    long shared_memory_per_block_optin_bytes, l2_cache_bytes;
    long clock_rate_khz, memory_clock_rate_khz, memory_bus_width_bits, pci_device_id;
    long first_kernel_bytes, code_room_bytes, stream_bytes;
    long cublas_handle_bytes, cublas_code_bytes, cudnn_handle_bytes, cudnn_code_bytes;
} vn_gpu_t;

API const vn_gpu_t *vn_gpu(void);          // the description; all zeros where there is none
API int vn_device_count(void);             // as CUDA_VISIBLE_DEVICES leaves them
API int vn_attribute(int attribute, int device, int *value);
API int vn_occupancy(int threads_per_block, size_t dynamic_shared_bytes);
API extern _Thread_local int vn_device;    // the thread's current device

// ---- report.c: what was called that has no meaning here ----

enum { REFUSED = 1, COMPUTES = 2, ASSUMED = 3, FOREIGN = 4 }; // FOREIGN: foreign.c
typedef struct vn_slot vn_slot_t;
API void vn_count(int kind, const char *library, const char *function, vn_slot_t **slot);
API void vn_tell_foreign(void); // what was loaded so far; vramlab/native/report.py calls it
#define COUNT(kind, library, function)                   \
    do {                                                 \
        static vn_slot_t *slot;                          \
        vn_count(kind, library, function, &slot);        \
    } while (0)

// ---- addresses.c: where cudaMalloc puts memory, as vramlab/allocator/addresses.py has it ----

typedef struct vn_space vn_space_t;
vn_space_t *vn_space_new(uintptr_t start, size_t bytes);
uintptr_t vn_space_take(vn_space_t *space, size_t bytes);    // 0: addresses have run out
uintptr_t vn_space_reserve(vn_space_t *space, size_t bytes); // of its own, in multiples of 32 MiB
void vn_space_give_back(vn_space_t *space, uintptr_t address, size_t bytes);

// ---- memory.c: allocations, and what lies in them ----

enum { UNREGISTERED = 0, HOST = 1, DEVICE = 2, MANAGED = 3, RESERVED = 4, MAPPED = 5, POOL = 6 };
typedef struct {
    uintptr_t start;
    size_t bytes;       // as asked for
    size_t taken_bytes; // of addresses
    int kind, device;
    void *handle;       // MAPPED: what backs it
} vn_range_t;

API int vn_use_device(int device);                            // makes its context
API int vn_allocate(int device, size_t bytes, int kind, void **address);
API int vn_free(void *address, int kind);
API int vn_find(const void *address, vn_range_t *found);      // 1: found
API int vn_memory_info(int device, size_t *free_bytes, size_t *total_bytes);
API int vn_take_physical(int device, size_t bytes);           // counts it, or is out of memory
API void vn_give_physical(int device, size_t bytes);
API size_t vn_device_used(int device);                        // with the context and what was loaded
int vn_take_loaded(int device, long bytes);                   // counts it, or is out of memory
API int vn_is_device(const void *address);
API int vn_device_of(const void *address);
API int vn_host_allocate(size_t bytes, void **address);
API int vn_host_free(void *address);
API int vn_host_register(void *address, size_t bytes);
API int vn_host_unregister(void *address);
API int vn_reserve(int device, size_t bytes, void **address);
API int vn_unreserve(void *address);
API int vn_map(void *address, size_t bytes, int device, void *handle);
API int vn_unmap(void *address, size_t bytes, void (*release)(void *handle));
API int vn_copy(void *to, const void *from, size_t bytes);
API void vn_read_next(const int64_t *numbers, int count);     // what the thread reads next, in place of memory
API int vn_set(void *to, int value, size_t value_bytes, size_t count);
API void *vn_module_memory(size_t bytes);                     // a kernel library's own variables

// ---- loading.c: what first uses take ----

enum { CUBLAS, CUDNN, vn_libraries };
API int vn_load_function(int device, const char *name);       // SUCCESS, or out of memory
API int vn_load_image(int device, const void *image);
API int vn_load_stream(int device);
API int vn_load_handle(int device, int library);
API int vn_load_product(int device, const char *function, int transposed_a, int transposed_b);
API void vn_unload_handle(int device, int library);

// ---- streams.c: streams, events and captures ----

typedef struct vn_stream vn_stream_t;
typedef struct vn_event vn_event_t;
typedef struct vn_graph vn_graph_t;

API vn_stream_t *vn_stream_new(unsigned flags, int priority);
API int vn_stream_delete(void *stream);
API int vn_stream_device(void *stream);
API int vn_stream_priority(void *stream);
API unsigned vn_stream_flags(void *stream);
API uint64_t vn_stream_id(void *stream);
API vn_event_t *vn_event_new(unsigned flags);
API void vn_event_delete(vn_event_t *event);
API int vn_event_record(vn_event_t *event, void *stream);
API int vn_event_query(vn_event_t *event);
API void vn_stream_wait(void *stream, vn_event_t *event);
API void vn_synchronize(void);                                // the program waits
API int vn_capture_begin(void *stream);
API int vn_capture_end(void *stream, vn_graph_t **graph);
API uint64_t vn_capture_of(void *stream, vn_graph_t **graph); // 0: none
API int vn_capture_status(void *stream);                      // cudaStreamCaptureStatus: 0 none, 1 active, 2 lost
API int vn_wait_for(void *stream);                            // whether it can be; a capture is lost
API int vn_wait_for_device(int device);
API int vn_work(void *stream);                                // something was put into it; whether it could be
API size_t vn_graph_nodes(vn_graph_t *graph);
API vn_graph_t *vn_graph_copy(vn_graph_t *graph);
API void vn_graph_delete(vn_graph_t *graph);
