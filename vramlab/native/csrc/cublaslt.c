// cuBLASLt. Source: NVIDIA's cuBLASLt reference. Descriptors keep what they are told.
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

enum { ALLOC_FAILED = 3, INVALID = 7 }; // cublasStatus_t
enum { TRANSPOSED_A = 3, TRANSPOSED_B = 4 }; // cublasLtMatmulDescAttributes_t
enum { ATTRIBUTES = 48, VALUE_BYTES = 64 };

typedef struct {
    int count;
    struct {
        int attribute;
        size_t bytes;
        char value[VALUE_BYTES];
    } items[ATTRIBUTES];
} descriptor_t;

static int set(descriptor_t *d, int attribute, const void *value, size_t bytes) {
    int at = 0;
    if (!d || !value || bytes > VALUE_BYTES) return INVALID;
    while (at < d->count && d->items[at].attribute != attribute) at++;
    if (at == ATTRIBUTES) return INVALID;
    if (at == d->count) d->count++;
    d->items[at].attribute = attribute;
    d->items[at].bytes = bytes;
    memcpy(d->items[at].value, value, bytes);
    return 0;
}

// What was set; an attribute that never was has its default, zeros.
static int get(const descriptor_t *d, int attribute, void *value, size_t bytes, size_t *written) {
    if (!d || !value) return INVALID;
    memset(value, 0, bytes);
    if (written) *written = bytes;
    for (int at = 0; at < d->count; at++)
        if (d->items[at].attribute == attribute)
            memcpy(value, d->items[at].value, bytes < d->items[at].bytes ? bytes : d->items[at].bytes);
    return 0;
}

static int make(descriptor_t **d) {
    *d = calloc(1, sizeof **d);
    return *d ? 0 : ALLOC_FAILED;
}
static int delete(descriptor_t *d) {
    free(d);
    return 0;
}

API size_t cublasLtGetVersion(void) { return CUDA_VERSION / 1000 * 10000; }
API size_t cublasLtGetCudartVersion(void) { return CUDA_VERSION; }
API int cublasLtGetProperty(int which, int *value) { // 0 major, 1 minor, 2 patch
    *value = which == 0 ? CUDA_VERSION / 1000 : 0;
    return 0;
}
API int cublasLtCreate(void **handle) { return make((descriptor_t **)handle); }
API int cublasLtDestroy(void *handle) { return delete(handle); }

// A product: compute type (attribute 0) and scale type (1).
API int cublasLtMatmulDescCreate(descriptor_t **d, int compute_type, int scale_type) {
    return make(d) || set(*d, 0, &compute_type, 4) || set(*d, 1, &scale_type, 4);
}
API int cublasLtMatmulDescDestroy(descriptor_t *d) { return delete(d); }
API int cublasLtMatmulDescSetAttribute(descriptor_t *d, int a, const void *v, size_t n) { return set(d, a, v, n); }
API int cublasLtMatmulDescGetAttribute(descriptor_t *d, int a, void *v, size_t n, size_t *w) { return get(d, a, v, n, w); }

// A matrix: type (0), rows (2), columns (3), leading dimension (4), a batch of one (5).
API int cublasLtMatrixLayoutCreate(descriptor_t **d, int type, uint64_t rows, uint64_t columns, int64_t ld) {
    int one = 1;
    return make(d) || set(*d, 0, &type, 4) || set(*d, 2, &rows, 8) || set(*d, 3, &columns, 8) ||
           set(*d, 4, &ld, 8) || set(*d, 5, &one, 4);
}
API int cublasLtMatrixLayoutDestroy(descriptor_t *d) { return delete(d); }
API int cublasLtMatrixLayoutSetAttribute(descriptor_t *d, int a, const void *v, size_t n) { return set(d, a, v, n); }
API int cublasLtMatrixLayoutGetAttribute(descriptor_t *d, int a, void *v, size_t n, size_t *w) { return get(d, a, v, n, w); }

// What to prefer among algorithms, and transformations of matrices.
API int cublasLtMatmulPreferenceCreate(descriptor_t **d) { return make(d); }
API int cublasLtMatmulPreferenceDestroy(descriptor_t *d) { return delete(d); }
API int cublasLtMatmulPreferenceSetAttribute(descriptor_t *d, int a, const void *v, size_t n) { return set(d, a, v, n); }
API int cublasLtMatmulPreferenceGetAttribute(descriptor_t *d, int a, void *v, size_t n, size_t *w) { return get(d, a, v, n, w); }
API int cublasLtMatrixTransformDescCreate(descriptor_t **d, int scale_type) { return make(d) || set(*d, 0, &scale_type, 4); }
API int cublasLtMatrixTransformDescDestroy(descriptor_t *d) { return delete(d); }
API int cublasLtMatrixTransformDescSetAttribute(descriptor_t *d, int a, const void *v, size_t n) { return set(d, a, v, n); }
API int cublasLtMatrixTransformDescGetAttribute(descriptor_t *d, int a, void *v, size_t n, size_t *w) { return get(d, a, v, n, w); }

typedef struct { // cublasLtMatmulHeuristicResult_t
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} result_t;

// Algorithms for a product: one, which needs no workspace. PyTorch sizes its workspace itself.
API int cublasLtMatmulAlgoGetHeuristic(void *handle, descriptor_t *product, descriptor_t *a, descriptor_t *b,
                                       descriptor_t *c, descriptor_t *d, descriptor_t *preference, int wanted,
                                       result_t *results, int *found) {
    (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d, (void)preference;
    if (wanted < 1) return INVALID;
    COUNT(ASSUMED, "libcublasLt", "an algorithm that needs no workspace");
    memset(results, 0, sizeof *results);
    results->waves = 1.0f;
    *found = 1;
    return 0;
}

// A product, when the stream comes to it.
API int cublasLtMatmul(void *handle, descriptor_t *product, const void *alpha, const void *a, descriptor_t *a_layout,
                       const void *b, descriptor_t *b_layout, const void *beta, const void *c, descriptor_t *c_layout,
                       void *d, descriptor_t *d_layout, const void *algorithm, void *workspace, size_t bytes,
                       void *stream) {
    int transposed_a, transposed_b;
    (void)handle, (void)alpha, (void)a, (void)a_layout, (void)b, (void)b_layout, (void)beta;
    (void)c, (void)c_layout, (void)d, (void)d_layout, (void)algorithm, (void)workspace, (void)bytes;
    COUNT(COMPUTES, "libcublasLt", "cublasLtMatmul");
    get(product, TRANSPOSED_A, &transposed_a, sizeof transposed_a, NULL);
    get(product, TRANSPOSED_B, &transposed_b, sizeof transposed_b, NULL);
    if (vn_load_product(vn_device, "cublasLtMatmul", transposed_a, transposed_b)) return ALLOC_FAILED;
    vn_work(stream);
    return 0;
}
