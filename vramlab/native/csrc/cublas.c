// cuBLAS. Source: NVIDIA's cuBLAS reference. Products and solutions are values, which nobody
// computes here; what a handle was told can be asked back.
#include "core/core.h"

#include <stdlib.h>

typedef struct {
    void *stream; // first: generated functions look for it there
    int math_mode, pointer_mode, device;
} handle_t;

enum { ALLOC_FAILED = 3 }; // cublasStatus_t

// A handle: CUBLAS_DEFAULT_MATH, scalars on the host, the default stream. It takes memory of the GPU.
API int cublasCreate_v2(handle_t **handle) {
    if (vn_load_handle(vn_device, CUBLAS)) return ALLOC_FAILED;
    *handle = calloc(1, sizeof **handle);
    if (!*handle) return ALLOC_FAILED;
    (*handle)->device = vn_device;
    return 0;
}
API int cublasDestroy_v2(handle_t *handle) {
    if (handle) vn_unload_handle(handle->device, CUBLAS);
    free(handle);
    return 0;
}
API int cublasSetStream_v2(handle_t *handle, void *stream) {
    handle->stream = stream;
    return 0;
}
API int cublasGetStream_v2(handle_t *handle, void **stream) {
    *stream = handle->stream;
    return 0;
}
API int cublasSetMathMode(handle_t *handle, int mode) {
    handle->math_mode = mode;
    return 0;
}
API int cublasGetMathMode(handle_t *handle, int *mode) {
    *mode = handle->math_mode;
    return 0;
}
API int cublasSetPointerMode_v2(handle_t *handle, int mode) {
    handle->pointer_mode = mode;
    return 0;
}
API int cublasGetPointerMode_v2(handle_t *handle, int *mode) {
    *mode = handle->pointer_mode;
    return 0;
}

// Results of these go to the host or the GPU, as the pointer mode (0: host) says; a value on the
// host is nothing that could be answered. CUBLAS_STATUS_NOT_SUPPORTED is 15.
#define RESULT(name)                                                     \
    API int name(const handle_t *handle) {                               \
        if (handle->pointer_mode == 0) {                                 \
            COUNT(REFUSED, "libcublas", #name " with a result on the host"); \
            return 15;                                                   \
        }                                                                \
        COUNT(COMPUTES, "libcublas", #name);                             \
        vn_work(handle->stream);                                         \
        return 0;                                                        \
    }
#define RESULTS(name)                                                    \
    RESULT(cublasS##name##_v2)                                           \
    RESULT(cublasD##name##_v2)
RESULTS(dot)
RESULTS(nrm2)
RESULTS(asum)
RESULT(cublasCdotu_v2)
RESULT(cublasCdotc_v2)
RESULT(cublasZdotu_v2)
RESULT(cublasZdotc_v2)
RESULT(cublasScnrm2_v2)
RESULT(cublasDznrm2_v2)
RESULT(cublasScasum_v2)
RESULT(cublasDzasum_v2)
RESULT(cublasIsamax_v2)
RESULT(cublasIdamax_v2)
RESULT(cublasIcamax_v2)
RESULT(cublasIzamax_v2)
RESULT(cublasIsamin_v2)
RESULT(cublasIdamin_v2)
RESULT(cublasIcamin_v2)
RESULT(cublasIzamin_v2)
RESULT(cublasDotEx)

// The version, 10000 * major + 100 * minor + patch: the first of its major.
API int cublasGetVersion_v2(handle_t *handle, int *version) {
    (void)handle;
    *version = CUDA_VERSION / 1000 * 10000;
    return 0;
}
API const char *cublasGetStatusString(int status) { return status ? "an error of cuBLAS" : "success"; }
