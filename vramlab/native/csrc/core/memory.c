// The GPUs' memory: who has which addresses, how much is in use, and what was copied there.
//
// Behind every address on a GPU is host memory that takes no room until something is copied to it,
// so copies there and back are true. What kernels would have written was never written: such
// memory reads as zeros, or as what was copied there before.
#define _GNU_SOURCE
#include "core.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WINDOW_BYTES ((size_t)1 << 42) // addresses of one GPU: 4 TiB
#define WINDOWS_START ((uintptr_t)1 << 45)
#define PAGE_BYTES 4096
#define DRIVER_PAGE_BYTES (2 * MIB) // what cudaMalloc takes is a multiple of it

typedef struct {
    vn_range_t *items;
    int count, room;
} table_t;

typedef struct {
    vn_space_t *space; // NULL: not in use yet
    size_t used_bytes; // without the context, and without what was loaded on first use
    size_t loaded_bytes;
} device_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device_t devices[MAX_DEVICES];
static table_t ranges;       // allocations, mapped parts of reservations, pinned host memory
static table_t reservations; // addresses without memory
static uintptr_t windows;    // the first GPU's first address; 0: not mapped yet

// ---- tables of ranges, by address ----

static int at_or_after(const table_t *table, uintptr_t address) {
    int low = 0, high = table->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (table->items[middle].start < address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void put(table_t *table, vn_range_t range) {
    if (table->count == table->room) {
        table->room = table->room ? 2 * table->room : 256;
        table->items = realloc(table->items, sizeof range * (size_t)table->room);
    }
    int at = at_or_after(table, range.start);
    memmove(table->items + at + 1, table->items + at, sizeof range * (size_t)(table->count - at));
    table->items[at] = range;
    table->count++;
}

static void drop(table_t *table, int at) {
    table->count--;
    memmove(table->items + at, table->items + at + 1, sizeof(vn_range_t) * (size_t)(table->count - at));
}

// The place of the range that begins at an address and is of a kind; -1: there is none.
static int starting(const table_t *table, uintptr_t address, int kind) {
    int at = at_or_after(table, address);
    if (at == table->count || table->items[at].start != address) return -1;
    return table->items[at].kind == kind ? at : -1;
}

static int containing(const table_t *table, uintptr_t address) {
    int at = at_or_after(table, address + 1) - 1;
    return at >= 0 && address < table->items[at].start + table->items[at].bytes ? at : -1;
}

// ---- devices ----

static int map_windows(void) {
    size_t bytes = WINDOW_BYTES * ((size_t)vn_device_count() + 1); // the last one: module memory
    void *mapped = mmap((void *)WINDOWS_START, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        fprintf(stderr,
                "vramlab: this system does not give out %zu TiB of addresses without memory "
                "(see `ulimit -v` and vm.overcommit_memory): there is no GPU\n",
                bytes >> 40);
        return NOT_INITIALIZED;
    }
    madvise(mapped, bytes, MADV_NOHUGEPAGE); // touching a page shall take no more than that page
    madvise(mapped, bytes, MADV_DONTDUMP);
    uintptr_t aligned = ((uintptr_t)mapped + 32 * MIB - 1) / (32 * MIB) * (32 * MIB);
    windows = aligned; // at WINDOWS_START it is aligned; elsewhere the last window is cut short
    return SUCCESS;
}

// With the lock held.
static int use_device(int device) {
    if (vn_device_count() == 0) return NO_DEVICE;
    if (device < 0 || device >= vn_device_count()) return INVALID_DEVICE;
    if (!windows && map_windows()) return NOT_INITIALIZED;
    if (!devices[device].space)
        devices[device].space = vn_space_new(windows + (size_t)device * WINDOW_BYTES, WINDOW_BYTES);
    return SUCCESS;
}

int vn_use_device(int device) {
    pthread_mutex_lock(&lock);
    int status = use_device(device);
    pthread_mutex_unlock(&lock);
    return status;
}

int vn_is_device(const void *address) {
    uintptr_t end = windows + ((size_t)vn_device_count() + 1) * WINDOW_BYTES - 32 * MIB;
    return windows && (uintptr_t)address >= windows && (uintptr_t)address < end;
}

int vn_device_of(const void *address) {
    return (int)(((uintptr_t)address - windows) / WINDOW_BYTES);
}

void *vn_module_memory(size_t bytes) {
    static size_t used_bytes;
    pthread_mutex_lock(&lock);
    void *place = NULL;
    if (!use_device(0)) {
        place = (char *)windows + (size_t)vn_device_count() * WINDOW_BYTES + used_bytes;
        used_bytes += (bytes + 255) / 256 * 256;
    }
    pthread_mutex_unlock(&lock);
    return place;
}

// With the lock held.
static int take_physical(int device, size_t bytes) {
    const vn_gpu_t *gpu = vn_gpu();
    size_t used = devices[device].used_bytes + devices[device].loaded_bytes + (size_t)gpu->context_bytes;
    if (bytes > (size_t)gpu->total_bytes || used + bytes > (size_t)gpu->total_bytes) return OUT_OF_MEMORY;
    devices[device].used_bytes += bytes;
    return SUCCESS;
}

int vn_take_physical(int device, size_t bytes) {
    pthread_mutex_lock(&lock);
    int status = use_device(device);
    if (!status) status = take_physical(device, bytes);
    pthread_mutex_unlock(&lock);
    return status;
}

void vn_give_physical(int device, size_t bytes) {
    pthread_mutex_lock(&lock);
    devices[device].used_bytes -= bytes;
    pthread_mutex_unlock(&lock);
}

// What first uses take beside the context; less than 0 gives it back.
int vn_take_loaded(int device, long bytes) {
    pthread_mutex_lock(&lock);
    int status = use_device(device);
    size_t used = devices[device].used_bytes + devices[device].loaded_bytes + (size_t)vn_gpu()->context_bytes;
    if (!status && bytes > 0 && used + (size_t)bytes > (size_t)vn_gpu()->total_bytes) status = OUT_OF_MEMORY;
    if (!status) devices[device].loaded_bytes += (size_t)bytes;
    pthread_mutex_unlock(&lock);
    return status;
}

// Counts a context only where this process has one: NVML asks without making one.
size_t vn_device_used(int device) {
    pthread_mutex_lock(&lock);
    size_t context = devices[device].space ? (size_t)vn_gpu()->context_bytes : 0;
    size_t used = devices[device].used_bytes + devices[device].loaded_bytes + context;
    pthread_mutex_unlock(&lock);
    return used;
}

int vn_memory_info(int device, size_t *free_bytes, size_t *total_bytes) {
    int status = vn_use_device(device);
    if (status) return status;
    *total_bytes = (size_t)vn_gpu()->total_bytes;
    *free_bytes = *total_bytes - vn_device_used(device);
    return SUCCESS;
}

// ---- allocations on a GPU ----

// Forget what was copied to some memory: it reads as zeros again, and takes no room on the host.
static void discard(uintptr_t start, size_t bytes) {
    uintptr_t first = (start + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    uintptr_t last = (start + bytes) / PAGE_BYTES * PAGE_BYTES;
    if (first >= last) {
        memset((void *)start, 0, bytes);
        return;
    }
    memset((void *)start, 0, first - start);
    madvise((void *)first, last - first, MADV_DONTNEED);
    memset((void *)last, 0, start + bytes - last);
}

// With the lock held.
static int allocate(int device, size_t bytes, int kind, void **address) {
    size_t taken = (bytes + DRIVER_PAGE_BYTES - 1) / DRIVER_PAGE_BYTES * DRIVER_PAGE_BYTES;
    int status = use_device(device);
    if (!status && taken < bytes) status = OUT_OF_MEMORY;
    if (!status && kind != POOL) status = take_physical(device, taken); // a pool counts its own
    if (status) return status;
    uintptr_t start = vn_space_take(devices[device].space, taken);
    if (!start) {
        if (kind != POOL) devices[device].used_bytes -= taken;
        return OUT_OF_MEMORY;
    }
    put(&ranges, (vn_range_t){start, bytes, taken, kind, device, NULL});
    *address = (void *)start;
    return SUCCESS;
}

int vn_allocate(int device, size_t bytes, int kind, void **address) {
    pthread_mutex_lock(&lock);
    int status = allocate(device, bytes, kind, address);
    pthread_mutex_unlock(&lock);
    return status;
}

int vn_free(void *address, int kind) {
    pthread_mutex_lock(&lock);
    int at = starting(&ranges, (uintptr_t)address, kind);
    if (at >= 0) {
        vn_range_t range = ranges.items[at];
        drop(&ranges, at);
        discard(range.start, range.taken_bytes);
        vn_space_give_back(devices[range.device].space, range.start, range.taken_bytes);
        if (kind != POOL) devices[range.device].used_bytes -= range.taken_bytes;
    }
    pthread_mutex_unlock(&lock);
    return at < 0 ? INVALID_VALUE : SUCCESS;
}

int vn_find(const void *address, vn_range_t *found) {
    pthread_mutex_lock(&lock);
    int at = containing(&ranges, (uintptr_t)address);
    if (at >= 0) *found = ranges.items[at];
    pthread_mutex_unlock(&lock);
    return at >= 0;
}

// ---- virtual memory: addresses first, memory behind them later ----

int vn_reserve(int device, size_t bytes, void **address) {
    pthread_mutex_lock(&lock);
    int status = use_device(device);
    uintptr_t start = status ? 0 : vn_space_reserve(devices[device].space, bytes);
    if (!status && !start) status = OUT_OF_MEMORY;
    if (!status) {
        size_t taken = (bytes + 32 * MIB - 1) / (32 * MIB) * (32 * MIB);
        put(&reservations, (vn_range_t){start, bytes, taken, RESERVED, device, NULL});
        *address = (void *)start;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int vn_unreserve(void *address) {
    pthread_mutex_lock(&lock);
    int at = starting(&reservations, (uintptr_t)address, RESERVED);
    if (at >= 0) {
        vn_range_t range = reservations.items[at];
        int inside = at_or_after(&ranges, range.start);
        if (inside < ranges.count && ranges.items[inside].start < range.start + range.bytes) {
            at = -1; // something is mapped there still
        } else {
            drop(&reservations, at);
            vn_space_give_back(devices[range.device].space, range.start, range.taken_bytes);
        }
    }
    pthread_mutex_unlock(&lock);
    return at < 0 ? INVALID_VALUE : SUCCESS;
}

int vn_map(void *address, size_t bytes, int device, void *handle) {
    uintptr_t start = (uintptr_t)address;
    pthread_mutex_lock(&lock);
    int status = INVALID_VALUE, at = containing(&reservations, start);
    if (at >= 0 && start + bytes <= reservations.items[at].start + reservations.items[at].bytes) {
        int next = at_or_after(&ranges, start);
        int free_there = containing(&ranges, start) < 0 &&
                         (next == ranges.count || ranges.items[next].start >= start + bytes);
        if (free_there) {
            put(&ranges, (vn_range_t){start, bytes, bytes, MAPPED, device, handle});
            status = SUCCESS;
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

// Unmaps whole mappings only, as the driver does; `release` is called for each one's handle.
int vn_unmap(void *address, size_t bytes, void (*release)(void *handle)) {
    uintptr_t start = (uintptr_t)address, end = start + bytes;
    pthread_mutex_lock(&lock);
    int first = at_or_after(&ranges, start), last = first;
    uintptr_t reached = start;
    while (last < ranges.count && ranges.items[last].start == reached && reached < end &&
           ranges.items[last].kind == MAPPED)
        reached += ranges.items[last++].bytes;
    int status = reached == end && last > first ? SUCCESS : INVALID_VALUE;
    int count = status ? 0 : last - first;
    void **handles = malloc(sizeof(void *) * (size_t)(count + 1));
    for (int i = 0; i < count; i++) {
        handles[i] = ranges.items[first].handle;
        drop(&ranges, first);
    }
    if (count) discard(start, bytes);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < count; i++) release(handles[i]);
    free(handles);
    return status;
}

// ---- pinned host memory ----

int vn_host_allocate(size_t bytes, void **address) {
    size_t taken = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    void *mapped = mmap(NULL, taken ? taken : PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    put(&ranges, (vn_range_t){(uintptr_t)mapped, bytes, taken ? taken : PAGE_BYTES, HOST, vn_device, mapped});
    pthread_mutex_unlock(&lock);
    *address = mapped;
    return SUCCESS;
}

int vn_host_free(void *address) {
    pthread_mutex_lock(&lock);
    int at = starting(&ranges, (uintptr_t)address, HOST);
    int mine = at >= 0 && ranges.items[at].handle != NULL;
    if (mine) {
        munmap(address, ranges.items[at].taken_bytes);
        drop(&ranges, at);
    }
    pthread_mutex_unlock(&lock);
    return mine ? SUCCESS : INVALID_VALUE;
}

int vn_host_register(void *address, size_t bytes) {
    pthread_mutex_lock(&lock);
    int known = containing(&ranges, (uintptr_t)address) >= 0;
    if (!known) put(&ranges, (vn_range_t){(uintptr_t)address, bytes, bytes, HOST, vn_device, NULL});
    pthread_mutex_unlock(&lock);
    return known ? HOST_MEMORY_ALREADY_REGISTERED : SUCCESS;
}

int vn_host_unregister(void *address) {
    pthread_mutex_lock(&lock);
    int at = starting(&ranges, (uintptr_t)address, HOST);
    int mine = at >= 0 && ranges.items[at].handle == NULL;
    if (mine) drop(&ranges, at);
    pthread_mutex_unlock(&lock);
    return mine ? SUCCESS : HOST_MEMORY_NOT_REGISTERED;
}

// ---- copies ----

// Whether the host has room for so much more. Small copies are not asked.
static int has_room(size_t bytes) {
    if (bytes < MIB) return 1;
    FILE *file = fopen("/proc/self/statm", "re");
    size_t size_pages = 0, resident_pages = 0;
    int read = file ? fscanf(file, "%zu %zu", &size_pages, &resident_pages) : 0;
    if (file) fclose(file);
    size_t limit = (size_t)vn_gpu()->host_bytes;
    return read < 2 || resident_pages * PAGE_BYTES + bytes <= limit;
}

static void write_true(uintptr_t to, const void *from, size_t bytes) {
    if (has_room(bytes)) {
        memcpy((void *)to, from, bytes);
    } else {
        COUNT(ASSUMED, "values", "not kept: no room on the host");
        discard(to, bytes);
    }
}

// Copies from a GPU; what nothing was ever copied to is not read, as that would take room.
static void read_sparse(uintptr_t to, uintptr_t from, size_t bytes, int to_device) {
    unsigned char resident[1024];
    while (bytes) {
        uintptr_t page = from / PAGE_BYTES * PAGE_BYTES;
        size_t pages = (from + bytes - page + PAGE_BYTES - 1) / PAGE_BYTES;
        if (pages > sizeof resident) pages = sizeof resident;
        if (mincore((void *)page, pages * PAGE_BYTES, resident)) memset(resident, 1, pages);
        size_t run = 1;
        while (run < pages && (resident[run] & 1) == (resident[0] & 1)) run++;
        size_t part = page + run * PAGE_BYTES - from;
        if (part > bytes) part = bytes;
        if (resident[0] & 1 && to_device) write_true(to, (void *)from, part);
        else if (resident[0] & 1) memcpy((void *)to, (void *)from, part);
        else if (to_device) discard(to, part);
        else memset((void *)to, 0, part);
        to += part, from += part, bytes -= part;
    }
}

// A kernel that counts has counted nothing. vramlab/native/counting.py gives the numbers that PyTorch's
// host code reads in the calling thread: how many elements of a mask are true, say.
#define MOST_NUMBERS 8
static _Thread_local int64_t next_numbers[MOST_NUMBERS];
static _Thread_local int next_count, next_at;

void vn_read_next(const int64_t *numbers, int count) {
    next_count = count < MOST_NUMBERS ? count : MOST_NUMBERS, next_at = 0;
    for (int i = 0; i < next_count; i++) next_numbers[i] = numbers[i];
}

int vn_copy(void *to, const void *from, size_t bytes) {
    int to_device = vn_is_device(to), from_device = vn_is_device(from);
    if (!bytes || to == from) return SUCCESS;
    if (!to || !from) return INVALID_VALUE;
    if (next_at < next_count && from_device && !to_device && bytes <= sizeof next_numbers[0]) {
        memcpy(to, &next_numbers[next_at++], bytes); // little-endian: the first bytes of a number
        return SUCCESS;
    }
    if (from_device && bytes >= 16 * PAGE_BYTES) read_sparse((uintptr_t)to, (uintptr_t)from, bytes, to_device);
    else if (to_device && !from_device) write_true((uintptr_t)to, from, bytes);
    else memmove(to, from, bytes);
    return SUCCESS;
}

// `count` values of 1, 2 or 4 bytes.
int vn_set(void *to, int value, size_t value_bytes, size_t count) {
    size_t bytes = value_bytes * count;
    if (!bytes) return SUCCESS;
    if (!to) return INVALID_VALUE;
    if (vn_is_device(to) && (value == 0 || !has_room(bytes))) {
        if (value) COUNT(ASSUMED, "values", "not kept: no room on the host");
        discard((uintptr_t)to, bytes);
        return SUCCESS;
    }
    for (size_t i = 0; value_bytes > 1 && i < count; i++) memcpy((char *)to + i * value_bytes, &value, value_bytes);
    if (value_bytes == 1) memset(to, value, bytes);
    return SUCCESS;
}
