// CUDA Runtime API, "Execution Control", "Driver Entry Point Access"; and what the host code that
// nvcc generates calls to make kernels known and to launch them (`nvcc --keep` shows it).
//
// A launch does nothing but count as work of its stream, and load the kernel if it is its first. One
// kernel is carried out: PyTorch's that fills a tensor with zeros. PyTorch's host code reads such
// tensors back (`any()` of no elements), and what lay there before would mislead it.
#define _GNU_SOURCE
#include "cudart.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} configuration_t;

// Between `kernel<<<...>>>` and its launch, the configuration lies on a stack of the thread.
static _Thread_local configuration_t stack[16];
static _Thread_local int depth;

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    if (depth == 16) return 1;
    stack[depth++] = (configuration_t){grid, block, shared, stream};
    return 0;
}
API int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!depth) return failed(INVALID_VALUE);
    configuration_t top = stack[--depth];
    *grid = top.grid, *block = top.block, *shared = top.shared;
    *(void **)stream = top.stream;
    return SUCCESS;
}

// ---- kernels, by the address of their host function, in a table with open addressing ----

typedef struct {
    const void *host; // NULL: free
    const char *name; // on the GPU, mangled
    uint32_t loaded;  // on which GPUs, a bit each
    uint32_t fills;   // size of the elements that it fills a tensor with; 0: it does something else
} kernel_t;

static kernel_t *kernels;
static size_t kernel_room, kernel_count;
static pthread_mutex_t kernels_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t place_of(const void *host) {
    size_t at = ((uintptr_t)host >> 2) * 0x9E3779B97F4A7C15u & (kernel_room - 1);
    while (kernels[at].host && kernels[at].host != host) at = (at + 1) & (kernel_room - 1);
    return at;
}

// Source: vectorized_elementwise_kernel(int N, func_t f, array_t data) in
// aten/src/ATen/native/cuda/CUDALoops.cuh, FillFunctor in FillKernel.cu, PyTorch 2.13. Types by their
// mangled names, as in the Itanium C++ ABI.
static uint32_t fills(const char *name) {
    static const char kernel[] = "_ZN2at6native29vectorized_elementwise_kernelILi", functor[] = "ENS0_11FillFunctorI";
    static const struct {
        const char *type;
        uint32_t bytes;
    } types[] = {{"b", 1}, {"a", 1}, {"h", 1}, {"s", 2}, {"t", 2}, {"i", 4},  {"j", 4}, {"l", 8},
                 {"m", 8}, {"f", 4}, {"d", 8}, {"N3c104HalfE", 2}, {"N3c108BFloat16E", 2},
                 {"N3c107complexIfEE", 8}, {"N3c107complexIdEE", 16}};
    if (strncmp(name, kernel, sizeof kernel - 1)) return 0;
    const char *at = strstr(name, functor);
    if (!at || at > name + sizeof kernel + 2) return 0;
    at += sizeof functor - 1;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t length = strlen(types[i].type);
        if (!strncmp(at, types[i].type, length) && !strncmp(at + length, "EE", 2)) return types[i].bytes;
    }
    return 0;
}

static void remember(const void *host, const char *name) {
    pthread_mutex_lock(&kernels_lock);
    if (2 * kernel_count >= kernel_room) {
        kernel_t *old = kernels;
        size_t old_room = kernel_room;
        kernel_room = old_room ? 2 * old_room : 1 << 16;
        kernels = calloc(kernel_room, sizeof *kernels);
        for (size_t i = 0; i < old_room; i++)
            if (old[i].host) kernels[place_of(old[i].host)] = old[i];
        free(old);
    }
    size_t at = place_of(host);
    if (!kernels[at].host) kernel_count++;
    kernels[at] = (kernel_t){host, name, 0, fills(name)};
    pthread_mutex_unlock(&kernels_lock);
}

// The kernel's code comes to the GPU when it is first launched there, if there is room.
static int load(const void *host, uint32_t *filled_bytes) {
    uint32_t bit = 1u << vn_device;
    int status = SUCCESS;
    pthread_mutex_lock(&kernels_lock);
    kernel_t *kernel = kernel_room ? &kernels[place_of(host)] : NULL;
    if (kernel && kernel->host && !(kernel->loaded & bit)) {
        status = vn_load_function(vn_device, kernel->name);
        if (!status) kernel->loaded |= bit;
    }
    if (kernel && kernel->host) *filled_bytes = kernel->fills;
    pthread_mutex_unlock(&kernels_lock);
    return status;
}

static void fill(void **arguments, uint32_t element_bytes, void *stream) {
    static const char zeros[16];
    size_t bytes = (size_t) * (int *)arguments[0] * element_bytes;
    char *to = *(char **)arguments[2];
    if (memcmp(arguments[1], zeros, element_bytes) || !vn_is_device(to)) return;
    if (!vn_capture_of(stream, NULL)) vn_set(to, 0, 1, bytes); // in a captured graph it does not run yet
}

// A block must fit: otherwise cudaErrorInvalidConfiguration (9), as on the GPU.
static int launch(const void *kernel, dim3 grid, dim3 block, void **arguments, void *stream) {
    uint32_t element_bytes = 0;
    const vn_gpu_t *gpu = vn_gpu();
    unsigned long threads = (unsigned long)block.x * block.y * block.z;
    if (!threads || threads > (unsigned long)gpu->max_threads_per_block) return failed(9);
    if (!grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535) return failed(9);
    int status = load(kernel, &element_bytes);
    if (!status && element_bytes && arguments) fill(arguments, element_bytes, stream);
    if (!status) status = vn_work(stream);
    return failed(status);
}

API int cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream) {
    (void)shared;
    return launch(kernel, grid, block, arguments, stream);
}
API int __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
API int cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                                    void *stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
API int cudaLaunchKernelExC(const configuration_t *configuration, const void *kernel, void **arguments) {
    return launch(kernel, configuration->grid, configuration->block, arguments, configuration->stream);
}

// Kernels and variables of a library become known when it is loaded.
API void **__cudaRegisterFatBinary(void *binary) {
    void **handle = malloc(sizeof(void *));
    *handle = binary;
    return handle;
}
API void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
API void __cudaUnregisterFatBinary(void **handle) { free(handle); }
API char __cudaInitModule(void **handle) {
    (void)handle;
    return 1;
}
API void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *tid,
                                void *bid, dim3 *block, dim3 *grid, int *warp) {
    remember(host, name);
    (void)handle, (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
}
API int __cudaGetKernel(void **kernel, const void *host) {
    *kernel = (void *)host;
    return SUCCESS;
}

typedef struct {
    const void *host;
    size_t bytes;
    void *address; // NULL until somebody asks
} variable_t;

static variable_t *variables;
static int variable_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

API void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int external, size_t bytes,
                           int constant, int global) {
    (void)handle, (void)address, (void)name, (void)external, (void)constant, (void)global;
    pthread_mutex_lock(&lock);
    if (variable_count % 64 == 0) variables = realloc(variables, sizeof *variables * (size_t)(variable_count + 64));
    variables[variable_count++] = (variable_t){host, bytes, NULL};
    pthread_mutex_unlock(&lock);
}

// The address on the GPU of a variable of a kernel library.
API int cudaGetSymbolAddress(void **address, const void *symbol) {
    int status = SYMBOL_NOT_FOUND;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < variable_count; i++) {
        if (variables[i].host != symbol) continue;
        if (!variables[i].address) variables[i].address = vn_module_memory(variables[i].bytes);
        *address = variables[i].address;
        status = *address ? SUCCESS : NOT_INITIALIZED;
        break;
    }
    pthread_mutex_unlock(&lock);
    return failed(status);
}

// Copy into such a variable.
API int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int direction) {
    void *address;
    (void)direction;
    int status = cudaGetSymbolAddress(&address, symbol);
    return status ? status : failed(vn_copy((char *)address + offset, from, bytes));
}

struct cudaFuncAttributes { // CUDA Runtime API, "Data Structures"
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes;
    int preferredShmemCarveout, clusterDimMustBeSet, requiredClusterWidth, requiredClusterHeight;
    int requiredClusterDepth, clusterSchedulingPolicyAllowed, nonPortableClusterSizeAllowed, reserved[16];
};

// What a kernel needs. Its code is not read: 32 registers, no static shared memory, code for the
// GPU's own capability.
API int cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *kernel) {
    const vn_gpu_t *gpu = vn_gpu();
    (void)kernel;
    memset(found, 0, sizeof *found);
    found->maxThreadsPerBlock = (int)gpu->max_threads_per_block;
    found->numRegs = 32;
    // Of code that a GPU can run, CUDA takes the latest. PyTorch's has none of 8.9's own, but 8.6's.
    long minor = gpu->major == 8 && gpu->minor > 6 ? 6 : gpu->minor;
    found->ptxVersion = found->binaryVersion = (int)(10 * gpu->major + minor);
    found->maxDynamicSharedSizeBytes = (int)gpu->shared_memory_per_block_bytes;
    found->preferredShmemCarveout = -1;
    return SUCCESS;
}

// Attribute 8 asks for more dynamic shared memory: no more than the GPU lets a block have.
API int cudaFuncSetAttribute(const void *kernel, int attribute, int value) {
    (void)kernel;
    if (attribute == 8 && value > vn_gpu()->shared_memory_per_block_optin_bytes) return failed(INVALID_VALUE);
    return SUCCESS;
}

// A function of the driver by its name; always the substitute's, that lies beside this library.
// Status: cudaDriverEntryPointQueryResult 0 found, 1 not found.
API int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                         unsigned long long flags, int *status) {
    static void *driver;
    char with_version[128];
    (void)version, (void)flags;
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    *function = NULL;
    // Later versions of a function carry a suffix, which callers leave out.
    for (const char *const *suffix = (const char *const[]){"_v2", "", NULL}; driver && *suffix && !*function; suffix++) {
        if (strlen(name) + strlen(*suffix) >= sizeof with_version) break;
        strcat(strcpy(with_version, name), *suffix);
        *function = dlsym(driver, with_version);
    }
    if (status) *status = *function ? 0 : 1;
    if (!*function) {
        vn_slot_t *slot = NULL;
        vn_count(REFUSED, "libcuda.so.1", name, &slot);
    }
    return SUCCESS;
}
API int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status) {
    return cudaGetDriverEntryPointByVersion(name, function, CUDA_VERSION, flags, status);
}
