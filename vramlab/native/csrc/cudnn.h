// What the sources of cuDNN's substitute share.
#pragma once

enum { CUDNN_SUCCESS = 0, CUDNN_ALLOC_FAILED = 1003, CUDNN_BAD_PARAM = 2000, CUDNN_NOT_SUPPORTED = 3000 }; // cudnnStatus_t, version 9
enum { CUDNN_DIMS = 3 };

// A tensor's descriptor: of those that a program makes, nothing is kept; those that cuDNN fills are asked about.
typedef struct {
    int type, sizes[CUDNN_DIMS];
} cudnn_tensor_t;
