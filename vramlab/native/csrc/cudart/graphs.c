// CUDA Runtime API, "Stream Management" (captures), "Graph Management".
//
// A graph knows how much was captured into it, and not what: replayed, it does as little as the
// kernels themselves.
#include "cudart.h"

#include <string.h>

// Capture what comes into a stream, from now on. The default stream cannot be captured.
API int cudaStreamBeginCapture(void *stream, int mode) {
    (void)mode;
    return failed(vn_capture_begin(stream));
}

// End it, and get the graph.
API int cudaStreamEndCapture(void *stream, void **graph) { return failed(vn_capture_end(stream, (vn_graph_t **)graph)); }

// Whether a stream captures.
API int cudaStreamIsCapturing(void *stream, int *status) {
    *status = vn_capture_status(stream);
    return SUCCESS;
}

#if CUDA_VERSION < 13000
#define cudaStreamGetCaptureInfo cudaStreamGetCaptureInfo_v3
// Status, number and graph of a capture; it never has dependencies that a program could add to.
API int cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph,
                                    const void ***dependencies, size_t *count) {
    vn_graph_t *captured;
    uint64_t capture = vn_capture_of(stream, &captured);
    *status = vn_capture_status(stream);
    if (id) *id = capture;
    if (graph) *graph = captured;
    if (dependencies) *dependencies = NULL;
    if (count) *count = 0;
    return SUCCESS;
}
#endif
API int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id, void **graph,
                                 const void ***dependencies, const void **edges, size_t *count) {
    vn_graph_t *captured;
    uint64_t capture = vn_capture_of(stream, &captured);
    *status = vn_capture_status(stream);
    if (id) *id = capture;
    if (graph) *graph = captured;
    if (dependencies) *dependencies = NULL;
    if (edges) *edges = NULL;
    if (count) *count = 0;
    return SUCCESS;
}

// What a thread may do while others capture; the old mode comes back.
API int cudaThreadExchangeStreamCaptureMode(int *mode) {
    static _Thread_local int mine = 0; // cudaStreamCaptureModeGlobal
    int old = mine;
    mine = *mode;
    *mode = old;
    return SUCCESS;
}

// Make a graph ready to run; run it; let both go.
API int cudaGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
    (void)flags;
    if (!graph) return failed(INVALID_VALUE);
    *executable = vn_graph_copy(graph);
    return SUCCESS;
}
API int cudaGraphLaunch(void *executable, void *stream) {
    vn_work(stream);
    return failed(executable ? SUCCESS : INVALID_VALUE);
}
API int cudaGraphExecDestroy(void *executable) {
    vn_graph_delete(executable);
    return SUCCESS;
}
API int cudaGraphDestroy(void *graph) {
    vn_graph_delete(graph);
    return SUCCESS;
}

// How many nodes a graph has. What they are is not known, so asking for them is refused.
API int cudaGraphGetNodes(void *graph, void **nodes, size_t *count) {
    if (nodes) {
        COUNT(REFUSED, "libcudart", "cudaGraphGetNodes: the nodes themselves");
        return failed(NOT_SUPPORTED);
    }
    *count = vn_graph_nodes(graph);
    return SUCCESS;
}
