// CUDA Runtime API, "Error Handling" and "Version Management".
#include "cudart.h"

static _Thread_local int last_error = SUCCESS;

int failed(int status) {
    if (status && status != NOT_READY) last_error = status;
    return status;
}

static const struct {
    int number;
    const char *name, *text;
} errors[] = {
    {SUCCESS, "cudaSuccess", "no error"},
    {INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument"},
    {OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
    {NOT_INITIALIZED, "cudaErrorInitializationError", "initialization error"},
    {NO_DEVICE, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {INVALID_HANDLE, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {SYMBOL_NOT_FOUND, "cudaErrorSymbolNotFound", "named symbol not found"},
    {NOT_READY, "cudaErrorNotReady", "device not ready"},
    {PEER_ACCESS_ALREADY_ENABLED, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {PEER_ACCESS_NOT_ENABLED, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {HOST_MEMORY_ALREADY_REGISTERED, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {HOST_MEMORY_NOT_REGISTERED, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {NOT_SUPPORTED, "cudaErrorNotSupported",
     "operation not supported (vramlab's substitute for a CUDA library has no meaning for it; "
     "its report names the function)"},
    {CAPTURE_UNSUPPORTED, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};
enum { ERRORS = sizeof errors / sizeof *errors };

// The name of an error; "unrecognized error code" for others.
API const char *cudaGetErrorName(int error) {
    for (int i = 0; i < ERRORS; i++)
        if (errors[i].number == error) return errors[i].name;
    return "unrecognized error code";
}

// What an error means; "unrecognized error code" for others.
API const char *cudaGetErrorString(int error) {
    for (int i = 0; i < ERRORS; i++)
        if (errors[i].number == error) return errors[i].text;
    return "unrecognized error code";
}

// The thread's last error, which is forgotten.
API int cudaGetLastError(void) {
    int error = last_error;
    last_error = SUCCESS;
    return error;
}

// The thread's last error.
API int cudaPeekAtLastError(void) { return last_error; }

// The CUDA version that the driver supports, 1000 * major + 10 * minor: the one PyTorch is for.
API int cudaDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return SUCCESS;
}

// The runtime's version.
API int cudaRuntimeGetVersion(int *version) {
    *version = CUDA_VERSION;
    return SUCCESS;
}
