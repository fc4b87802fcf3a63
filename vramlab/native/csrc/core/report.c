// Counts calls that have no meaning here, in a file that processes share.
//
// VRAMLAB_NATIVE_REPORT names a file of SLOTS records of zeros (vramlab/native/report.py makes and
// reads it). A record is claimed by the first call, then counted up; forks and other processes of
// the program count into the same ones.
#define _GNU_SOURCE
#include "core.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct vn_slot {
    _Atomic uint32_t state; // 0: free, 1: being written, 2: in use
    uint32_t kind;
    _Atomic uint64_t count;
    char library[40];
    char function[72];
};
enum { SLOTS = 4096 };

static vn_slot_t *slots;
static vn_slot_t nowhere; // where there is no file
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void map_file(void) {
    const char *path = getenv("VRAMLAB_NATIVE_REPORT");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    off_t bytes = lseek(file, 0, SEEK_END);
    if (bytes >= (off_t)(SLOTS * sizeof(vn_slot_t))) {
        void *mapped = mmap(NULL, SLOTS * sizeof(vn_slot_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED) slots = mapped;
    }
    close(file);
}

static int is(const vn_slot_t *slot, uint32_t kind, const char *library, const char *function) {
    return slot->kind == kind && !strncmp(slot->library, library, sizeof slot->library - 1) &&
           !strncmp(slot->function, function, sizeof slot->function - 1);
}

static vn_slot_t *find(uint32_t kind, const char *library, const char *function) {
    pthread_once(&once, map_file);
    if (!slots) return &nowhere;
    for (int i = 0; i < SLOTS; i++) {
        uint32_t free_slot = 0;
        if (atomic_compare_exchange_strong(&slots[i].state, &free_slot, 1)) {
            slots[i].kind = kind;
            strncpy(slots[i].library, library, sizeof slots[i].library - 1);
            strncpy(slots[i].function, function, sizeof slots[i].function - 1);
            atomic_store(&slots[i].state, 2);
            return &slots[i];
        }
        for (int spins = 0; atomic_load(&slots[i].state) == 1 && spins < 1 << 20; spins++) {
        }
        if (atomic_load(&slots[i].state) == 2 && is(&slots[i], kind, library, function)) return &slots[i];
    }
    return &nowhere;
}

void vn_count(int kind, const char *library, const char *function, vn_slot_t **slot) {
    if (!*slot) *slot = find((uint32_t)kind, library, function);
    atomic_fetch_add_explicit(&(*slot)->count, 1, memory_order_relaxed);
}
