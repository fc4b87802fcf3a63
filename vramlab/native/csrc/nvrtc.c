// NVRTC. Source: NVIDIA's NVRTC reference. Every program "compiles", to code that is one zero:
// nobody reads a kernel's code here.
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

enum { MEMORY = 1, INVALID_INPUT = 3 }; // nvrtcResult
typedef struct program {
    char *expressions[64]; // names of kernels that were asked for
    int count;
} program_t;

API const char *nvrtcGetErrorString(int error) { return error ? "NVRTC_ERROR" : "NVRTC_SUCCESS"; }
API int nvrtcVersion(int *major, int *minor) {
    *major = CUDA_VERSION / 1000;
    *minor = CUDA_VERSION % 1000 / 10;
    return 0;
}

// A program from its source, to be compiled, and let go.
API int nvrtcCreateProgram(program_t **program, const char *source, const char *name, int headers,
                           const char *const *texts, const char *const *names) {
    (void)name, (void)headers, (void)texts, (void)names;
    if (!source) return INVALID_INPUT;
    *program = calloc(1, sizeof **program);
    return *program ? 0 : MEMORY;
}
API int nvrtcCompileProgram(program_t *program, int count, const char *const *options) {
    (void)program, (void)count, (void)options;
    COUNT(COMPUTES, "libnvrtc", "nvrtcCompileProgram");
    return 0;
}
API int nvrtcDestroyProgram(program_t **program) {
    for (int i = 0; i < (*program)->count; i++) free((*program)->expressions[i]);
    free(*program);
    *program = NULL;
    return 0;
}

// The name that a kernel has in the code: here the one by which it was asked for.
API int nvrtcAddNameExpression(program_t *program, const char *expression) {
    if (program->count == 64) return INVALID_INPUT;
    program->expressions[program->count++] = strdup(expression);
    return 0;
}
API int nvrtcGetLoweredName(program_t *program, const char *expression, const char **name) {
    for (int i = 0; i < program->count; i++) {
        if (strcmp(program->expressions[i], expression)) continue;
        *name = program->expressions[i];
        return 0;
    }
    return INVALID_INPUT;
}

// Texts with their size: one zero each.
#define TEXT(name)                                       \
    API int nvrtcGet##name##Size(program_t *program, size_t *bytes) { \
        (void)program;                                   \
        *bytes = 1;                                      \
        return 0;                                        \
    }                                                    \
    API int nvrtcGet##name(program_t *program, char *text) { \
        (void)program;                                   \
        text[0] = 0;                                     \
        return 0;                                        \
    }
TEXT(PTX)
TEXT(CUBIN)
TEXT(ProgramLog)
TEXT(LTOIR)

// Capabilities that can be compiled for, in rising order (NVRTC reference, "Supported Compile
// Options", --gpu-architecture).
static const int capabilities[] = {
#if CUDA_VERSION < 13000
    50, 52, 53, 60, 61, 62, 70, 72,
#endif
    75, 80, 86, 87, 89, 90, 100, 103, 120, 121,
};
API int nvrtcGetNumSupportedArchs(int *count) {
    *count = sizeof capabilities / sizeof *capabilities;
    return 0;
}
API int nvrtcGetSupportedArchs(int *found) {
    memcpy(found, capabilities, sizeof capabilities);
    return 0;
}
