// NVRTC. Source: NVIDIA's NVRTC reference. It compiles nothing: PyTorch's few kernels that are
// compiled when they are first used end with an error that says so.
#include "core/core.h"

API const char *nvrtcGetErrorString(int error) {
    return error ? "NVRTC_ERROR (vramlab's substitute does not compile kernels)" : "NVRTC_SUCCESS";
}
API int nvrtcVersion(int *major, int *minor) {
    *major = CUDA_VERSION / 1000;
    *minor = CUDA_VERSION % 1000 / 10;
    return 0;
}
