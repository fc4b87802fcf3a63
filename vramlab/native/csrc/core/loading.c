// What first uses take of a GPU: kernels, handles of libraries, streams.
//
// vramlab/cuda_rules/first_uses.py has the rules and where they are from. How much code a function
// has is read from the file that VRAMLAB_NATIVE_CODE names (vramlab/native/kernel_code.py writes it);
// without one, and of functions that it lacks, the code counts as nothing.
#define _GNU_SOURCE
#include "core.h"

#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CODE_GRAIN_BYTES 4096
enum { MODULES = 4096, PRODUCTS = 64 };

typedef struct { // by name_hash, ascending
    uint64_t name_hash;
    uint32_t code_bytes;
    uint16_t module, data_kib; // data of the module, which all of its functions share
} function_t;

typedef struct {
    int kernels, libraries[vn_libraries];            // how many of its handles there are
    int product_count, convolves;                    // kinds of products; whether there was a convolution
    uint64_t products[PRODUCTS];
    unsigned char modules[MODULES / 8];
    size_t code_bytes, data_bytes, image_bytes, streams; // of functions, modules, the driver's modules
    size_t counted_bytes;
} loaded_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static loaded_t loaded[MAX_DEVICES];
static const function_t *functions;
static size_t function_count;

static void read_functions(void) {
    const char *path = getenv("VRAMLAB_NATIVE_CODE"), *loading = getenv("CUDA_MODULE_LOADING");
    if (loading && !strcmp(loading, "EAGER"))
        COUNT(ASSUMED, "libcudart", "CUDA_MODULE_LOADING=EAGER: kernels count when first used all the same");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat status;
    if (file < 0) return;
    if (!fstat(file, &status) && status.st_size > 0) {
        void *mapped = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (mapped != MAP_FAILED) functions = mapped, function_count = (size_t)status.st_size / sizeof *functions;
    }
    close(file);
}

// FNV-1a, 64 bits.
static uint64_t hash_of(const char *name) {
    uint64_t hash = 0xCBF29CE484222325u;
    while (*name) hash = (hash ^ (unsigned char)*name++) * 0x100000001B3u;
    return hash;
}

static const function_t *find(const char *name) {
    pthread_once(&once, read_functions);
    uint64_t wanted = hash_of(name);
    size_t low = 0, high = function_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (functions[middle].name_hash < wanted) low = middle + 1;
        else high = middle;
    }
    return low < function_count && functions[low].name_hash == wanted ? &functions[low] : NULL;
}

static size_t pages(size_t bytes) { return (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB); }

static size_t total_bytes(const loaded_t *l) {
    const vn_gpu_t *g = vn_gpu();
    size_t room = (size_t)g->code_room_bytes, cublas = (size_t)l->libraries[CUBLAS], cudnn = (size_t)l->libraries[CUDNN];
    size_t code = l->code_bytes + (size_t)l->product_count * (size_t)g->cublas_code_bytes +
                  (l->convolves ? (size_t)g->cudnn_code_bytes : 0);
    int any = l->kernels || l->product_count || l->convolves; // each brings some data
    return (l->kernels ? (size_t)g->first_kernel_bytes : 0) + pages(code > room ? code - room : 0) +
           pages(l->data_bytes + (size_t)any) + pages(l->image_bytes) + cublas * (size_t)g->cublas_handle_bytes +
           cudnn * (size_t)g->cudnn_handle_bytes + pages(l->streams * (size_t)g->stream_bytes);
}

// Take what has become more. With the lock held; where there is no room, `before` comes back.
static int settle(int device, loaded_t *l, loaded_t before) {
    size_t total = total_bytes(l);
    int status = vn_take_loaded(device, (long)total - (long)l->counted_bytes);
    if (status) *l = before;
    else l->counted_bytes = total;
    return status;
}

int vn_load_function(int device, const char *name) {
    const function_t *function = find(name);
    pthread_mutex_lock(&lock);
    loaded_t *l = &loaded[device], before = *l;
    l->kernels++;
    if (function) {
        l->code_bytes += (function->code_bytes + CODE_GRAIN_BYTES - 1) / CODE_GRAIN_BYTES * CODE_GRAIN_BYTES;
        unsigned char *byte = &l->modules[function->module % MODULES / 8], bit = 1 << function->module % 8;
        if (!(*byte & bit)) l->data_bytes += (size_t)function->data_kib * 1024;
        *byte |= bit;
    }
    int status = settle(device, l, before);
    pthread_mutex_unlock(&lock);
    return status;
}

int vn_load_handle(int device, int library) {
    pthread_mutex_lock(&lock);
    loaded_t *l = &loaded[device], before = *l;
    l->libraries[library]++;
    if (library == CUDNN) l->convolves = 1;
    int status = settle(device, l, before);
    pthread_mutex_unlock(&lock);
    return status;
}

void vn_unload_handle(int device, int library) {
    pthread_mutex_lock(&lock);
    loaded_t *l = &loaded[device];
    if (l->libraries[library]) l->libraries[library]--;
    settle(device, l, *l);
    pthread_mutex_unlock(&lock);
}

int vn_load_product(int device, const char *function, int transposed_a, int transposed_b) {
    uint64_t kind = hash_of(function) ^ (uint64_t)(transposed_a & 3) << 2 ^ (uint64_t)(transposed_b & 3);
    int at = 0, status = SUCCESS;
    pthread_mutex_lock(&lock);
    loaded_t *l = &loaded[device];
    while (at < l->product_count && l->products[at] != kind) at++;
    if (at == l->product_count && at < PRODUCTS) {
        loaded_t before = *l;
        l->products[l->product_count++] = kind;
        status = settle(device, l, before);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int vn_load_stream(int device) {
    pthread_mutex_lock(&lock);
    loaded_t *l = &loaded[device], before = *l;
    l->streams++;
    int status = settle(device, l, before);
    pthread_mutex_unlock(&lock);
    return status;
}

// The code in a driver's module: what its sections of an ELF file say are instructions.
int vn_load_image(int device, const void *image) {
    const Elf64_Ehdr *header = image;
    size_t bytes = 1; // no ELF file: PTX, which the driver compiles
    if (!memcmp(image, ELFMAG, SELFMAG) && header->e_shentsize == sizeof(Elf64_Shdr)) {
        const Elf64_Shdr *sections = (const Elf64_Shdr *)((const char *)image + header->e_shoff);
        for (int i = 0; i < header->e_shnum; i++)
            if (sections[i].sh_flags & SHF_EXECINSTR) bytes += sections[i].sh_size;
    }
    pthread_mutex_lock(&lock);
    loaded_t *l = &loaded[device], before = *l;
    l->image_bytes += bytes;
    int status = settle(device, l, before);
    pthread_mutex_unlock(&lock);
    return status;
}
