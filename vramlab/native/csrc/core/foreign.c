// Libraries of NVIDIA's that lie elsewhere, and were loaded beside the substitutes: packages bring
// their own, or find those of an installation. They are told once, when a process ends at the latest.
#define _GNU_SOURCE
#include "core.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 71 }; // what a record of the report holds

// The stems of libraries.py, without NVRTC: PyTorch's real one comes from `setup --cudnn`.
static const char *const stems[] = {
    "libcudart", "libcuda",   "libnvidia-ml", "libcublas",   "libcublasLt", "libcudnn", "libnccl",        "libcusolver",
    "libcusparse", "libcusparseLt", "libcufft", "libcurand", "libcupti",    "libcufile", "libnvshmem_host",
};

static int is_substituted(const char *file) {
    for (size_t i = 0; i < sizeof stems / sizeof *stems; i++) {
        size_t length = strlen(stems[i]);
        if (!strncmp(file, stems[i], length) && !strncmp(file + length, ".so", 3)) return 1;
    }
    return 0;
}

static int look_at(struct dl_phdr_info *info, size_t bytes, void *own) {
    (void)bytes;
    const char *path = info->dlpi_name, *slash = path ? strrchr(path, '/') : NULL;
    if (!slash || !is_substituted(slash + 1)) return 0;
    char real[PATH_MAX]; // a substitute may be loaded through a link, see _link_preloads in setup.py
    const char *mine = own, *mine_slash = strrchr(mine, '/'), *at = realpath(path, real) ? real : path;
    size_t folder = (size_t)(strrchr(at, '/') - at);
    if (mine_slash && (size_t)(mine_slash - mine) == folder && !strncmp(at, mine, folder)) return 0;
    vn_slot_t *slot = NULL;
    size_t length = strlen(path);
    vn_count(FOREIGN, slash + 1, length > PATH_BYTES ? path + length - PATH_BYTES : path, &slot);
    return 0;
}

static void look(void) {
    Dl_info own;
    char real[PATH_MAX];
    if (dladdr(stems, &own) && own.dli_fname && realpath(own.dli_fname, real)) dl_iterate_phdr(look_at, real);
}

API void vn_tell_foreign(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
}

__attribute__((destructor)) static void tell(void) { vn_tell_foreign(); }
