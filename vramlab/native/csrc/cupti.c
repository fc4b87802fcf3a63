// CUPTI, which PyTorch's profiler asks. Source: NVIDIA's CUPTI reference. It traces nothing.
#include "core/core.h"

API int cuptiGetVersion(unsigned *version) {
    *version = CUDA_VERSION / 100;
    return 0;
}
API int cuptiGetResultString(int result, const char **text) {
    *text = result ? "CUPTI_ERROR_NOT_SUPPORTED (vramlab's substitute traces nothing)" : "CUPTI_SUCCESS";
    return 0;
}
