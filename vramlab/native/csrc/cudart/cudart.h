// What the files of the substitute CUDA runtime share. Source of every contract in this folder:
// NVIDIA's CUDA Runtime API reference, the section that each file names.
#pragma once
#include "../core/core.h"

// Keep an error for cudaGetLastError, and answer it.
int failed(int status);

typedef struct {
    unsigned x, y, z;
} dim3;
