// cuDNN's recurrent networks and dropout. Source: NVIDIA's cuDNN API reference, cudnn_adv and cudnn_ops.
//
// cuDNN cannot be asked for their memory without a GPU, so the sizes are rules. T steps, batch B, hidden size H,
// L layers, e bytes of a number, u = T B H e for each direction:
//   LSTM  reserve    (6 L - 1) u + 8 L B H + 256: gates, cell and output of every layer, states in float32
//         workspace  6 L u (16 bits: one u more; no training: one u less) + 10 L B H e + 512
//   GRU   reserve    (7 L - 1) u + 8 L B H + 256; workspace as an LSTM's with 7
// L = 2 of an LSTM: equal to the byte to the H200's recording, cuDNN 9.19 (assets/recordings, zoo/lstm-*). Reserves of
// L = 4: 23 u and 27 u, as https://github.com/pytorch/pytorch/issues/2895 printed them (cuDNN 7). How workspaces grow
// with layers, and those of GRUs, are assumptions. The temporaries follow from T and B alone, as the reference says.
#include "core/core.h"
#include "cudnn.h"

#include <stdlib.h>

enum { LSTM = 2, GRU = 3 };                        // cudnnRNNMode_t; 0 and 1: without gates
enum { DOUBLE = 1, HALF = 2, BFLOAT16 = 9 };       // cudnnDataType_t
enum { STANDARD = 0 };                             // cudnnRNNAlgo_t

typedef struct {
    int algorithm, mode, directions, type;
    size_t input, hidden, projection, layers;
} rnn_t;

typedef struct {
    size_t steps, batch;
} data_t;

#define DESCRIPTOR(name, struct_t)                                                           \
    API int cudnnCreate##name##Descriptor(void **descriptor) {                               \
        *descriptor = calloc(1, sizeof(struct_t));                                           \
        return *descriptor ? CUDNN_SUCCESS : CUDNN_BAD_PARAM;                                \
    }                                                                                        \
    API int cudnnDestroy##name##Descriptor(void *descriptor) {                               \
        free(descriptor);                                                                    \
        return CUDNN_SUCCESS;                                                                \
    }
DESCRIPTOR(RNN, rnn_t)
DESCRIPTOR(RNNData, data_t)
DESCRIPTOR(Dropout, int)

static size_t bytes_of(int type) { return type == DOUBLE ? 8 : type == HALF || type == BFLOAT16 ? 2 : 4; }
static size_t gates(const rnn_t *rnn) { return rnn->mode == LSTM ? 4 : rnn->mode == GRU ? 3 : 1; }

API int cudnnSetRNNDescriptor_v8(rnn_t *rnn, int algorithm, int mode, int bias, int direction, int input_mode, int type,
                                 int math_precision, int math_type, int32_t input, int32_t hidden, int32_t projection,
                                 int32_t layers, void *dropout, uint32_t flags) {
    (void)bias, (void)input_mode, (void)math_precision, (void)math_type, (void)dropout, (void)flags;
    *rnn = (rnn_t){algorithm, mode, 1 + direction, type, (size_t)input, (size_t)hidden, (size_t)projection, (size_t)layers};
    return CUDNN_SUCCESS;
}

API int cudnnSetRNNDataDescriptor(data_t *data, int type, int layout, int steps, int batch, int width, const int *lengths,
                                  void *fill) {
    (void)type, (void)layout, (void)width, (void)lengths, (void)fill;
    *data = (data_t){(size_t)steps, (size_t)batch};
    return CUDNN_SUCCESS;
}

API int cudnnGetRNNTempSpaceSizes(void *handle, const rnn_t *rnn, int training, const data_t *data, size_t *workspace,
                                  size_t *reserve) {
    (void)handle;
    if ((rnn->mode != LSTM && rnn->mode != GRU) || rnn->projection != rnn->hidden) {
        COUNT(REFUSED, "libcudnn", "memory of an RNN without gates, or of an LSTM with projections");
        return CUDNN_NOT_SUPPORTED;
    }
    if (rnn->mode == GRU)
        COUNT(ASSUMED, "libcudnn", "a GRU's reserve as cuDNN 7 printed it, its workspace in proportion");
    else if (rnn->algorithm != STANDARD)
        COUNT(ASSUMED, "libcudnn", "an LSTM's memory in cuDNN's persistent algorithm as in the standard one");
    else if (rnn->layers != 2 || rnn->directions != 1)
        COUNT(ASSUMED, "libcudnn", "an LSTM's workspace in proportion to its layers");
    size_t number = bytes_of(rnn->type), layers = rnn->layers, each = rnn->mode == LSTM ? 6 : 7;
    size_t state = (size_t)rnn->directions * data->batch * rnn->hidden, unit = data->steps * state * number;
    if (workspace) *workspace = (each * layers + (number == 2) - !training) * unit + 10 * layers * state * number + 512;
    if (reserve) *reserve = training ? (each * layers - 1) * unit + 8 * layers * state + 256 : 0;
    return CUDNN_SUCCESS;
}

// ---- weights: the matrices of every layer, gate by gate, then the biases ----

// Numbers in the input's matrices of a layer, where a layer is counted once for each direction.
static size_t input_width(const rnn_t *rnn, size_t layer) {
    return layer < (size_t)rnn->directions ? rnn->input : (size_t)rnn->directions * rnn->projection;
}
static size_t layer_numbers(const rnn_t *rnn, size_t layer) {
    size_t projected = rnn->projection == rnn->hidden ? 0 : rnn->projection * rnn->hidden;
    return gates(rnn) * rnn->hidden * (input_width(rnn, layer) + rnn->projection) + projected;
}
static size_t matrix_numbers(const rnn_t *rnn, size_t layers) {
    size_t numbers = 0;
    for (size_t layer = 0; layer < layers; layer++) numbers += layer_numbers(rnn, layer);
    return numbers;
}

API int cudnnGetRNNWeightSpaceSize(void *handle, const rnn_t *rnn, size_t *bytes) {
    (void)handle;
    size_t layers = rnn->layers * (size_t)rnn->directions;
    *bytes = (matrix_numbers(rnn, layers) + 2 * layers * gates(rnn) * rnn->hidden) * bytes_of(rnn->type);
    return CUDNN_SUCCESS;
}

static void describe(cudnn_tensor_t *tensor, const rnn_t *rnn, size_t rows, size_t columns) {
    *tensor = (cudnn_tensor_t){rnn->type, {1, (int)rows, (int)columns}};
}

API int cudnnGetRNNWeightParams(void *handle, const rnn_t *rnn, int32_t layer, size_t bytes, char *weights, int32_t id,
                                cudnn_tensor_t *matrix, char **matrix_at, cudnn_tensor_t *bias, char **bias_at) {
    (void)handle, (void)bytes;
    size_t number = bytes_of(rnn->type), count = gates(rnn), gate = (size_t)id, at = (size_t)layer;
    size_t width = input_width(rnn, at), layers = rnn->layers * (size_t)rnn->directions;
    int is_input = gate < count, is_projection = gate == 2 * count;
    if (matrix) {
        size_t before = is_input ? gate * width : count * width + (gate - count) * rnn->projection;
        size_t rows = is_projection ? rnn->projection : rnn->hidden;
        size_t columns = is_input ? width : is_projection ? rnn->hidden : rnn->projection;
        describe(matrix, rnn, rows, columns);
        *matrix_at = weights + (matrix_numbers(rnn, at) + before * rnn->hidden) * number;
    }
    if (bias) {
        describe(bias, rnn, rnn->hidden, 1);
        *bias_at = weights + (matrix_numbers(rnn, layers) + (2 * count * at + gate) * rnn->hidden) * number;
    }
    return CUDNN_SUCCESS;
}

API int cudnnGetTensorNdDescriptor(const cudnn_tensor_t *tensor, int wanted, int *type, int *dims, int *sizes, int *strides) {
    *type = tensor->type;
    *dims = CUDNN_DIMS;
    for (int i = 0; i < wanted && i < CUDNN_DIMS; i++) {
        sizes[i] = tensor->sizes[i];
        strides[i] = i == 2 ? 1 : i == 1 ? tensor->sizes[2] : tensor->sizes[1] * tensor->sizes[2];
    }
    return CUDNN_SUCCESS;
}

// ---- dropout: 48 KiB for each multiprocessor, as the H200's recording has it (6,488,064 B for 132) ----

API int cudnnDropoutGetStatesSize(void *handle, size_t *bytes) {
    (void)handle;
    COUNT(ASSUMED, "libcudnn", "dropout's states take 48 KiB for each multiprocessor");
    *bytes = (size_t)vn_gpu()->multiprocessors * 48 * 1024;
    return CUDNN_SUCCESS;
}
