// Streams, events and captured graphs. Nothing runs, so all work is done as soon as it is asked for.
//
// With `late`, an event completes only when the program waits for something: the other extreme of
// what a GPU may do, on which it depends when PyTorch can use a block again that two streams used.
#define _GNU_SOURCE
#include "core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct vn_graph {
    uint64_t capture;
    size_t nodes;
    int invalid; // something was done that a capture forbids
};
struct vn_stream {
    int device, priority;
    unsigned flags;
    uint64_t id, capture; // 0: none
    vn_graph_t *graph;    // that is being captured
    vn_stream_t *next;
};
struct vn_event {
    int recorded;
    long epoch;
    uint64_t capture;
    vn_graph_t *graph;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static vn_stream_t *streams;
static uint64_t ids = 2, captures;
static _Atomic long epoch = 1; // counts the program's waits

// Invalidate a capture, or those of a device's streams where it is 0; whether there was one.
static int invalidate(uint64_t capture, int device) {
    int status = capture ? CAPTURE_UNSUPPORTED : SUCCESS;
    pthread_mutex_lock(&lock);
    for (vn_stream_t *each = streams; each; each = each->next)
        if (each->capture && (capture ? each->capture == capture : each->device == device))
            each->graph->invalid = 1, status = CAPTURE_UNSUPPORTED;
    pthread_mutex_unlock(&lock);
    return status;
}

// Handles 0, 1 and 2 are the default streams: legacy, legacy, per thread (CUDA Runtime API,
// "Stream synchronization behavior").
static int is_default(void *stream) { return (uintptr_t)stream < 3; }

vn_stream_t *vn_stream_new(unsigned flags, int priority) {
    vn_stream_t *stream = calloc(1, sizeof *stream);
    pthread_mutex_lock(&lock);
    *stream = (vn_stream_t){.device = vn_device, .priority = priority, .flags = flags, .id = ++ids, .next = streams};
    streams = stream;
    pthread_mutex_unlock(&lock);
    return stream;
}

int vn_stream_delete(void *stream) {
    if (is_default(stream)) return INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    vn_stream_t **at = &streams;
    while (*at && *at != stream) at = &(*at)->next;
    int known = *at != NULL;
    if (known) *at = (*at)->next;
    pthread_mutex_unlock(&lock);
    if (known) free(stream);
    return known ? SUCCESS : INVALID_HANDLE;
}

int vn_stream_device(void *stream) { return is_default(stream) ? vn_device : ((vn_stream_t *)stream)->device; }
int vn_stream_priority(void *stream) { return is_default(stream) ? 0 : ((vn_stream_t *)stream)->priority; }
unsigned vn_stream_flags(void *stream) { return is_default(stream) ? 0 : ((vn_stream_t *)stream)->flags; }
uint64_t vn_stream_id(void *stream) {
    return is_default(stream) ? (uint64_t)(uintptr_t)stream : ((vn_stream_t *)stream)->id;
}

vn_event_t *vn_event_new(unsigned flags) {
    (void)flags;
    return calloc(1, sizeof(vn_event_t));
}

void vn_event_delete(vn_event_t *event) { free(event); }

int vn_event_record(vn_event_t *event, void *stream) {
    if (!event) return INVALID_HANDLE;
    event->recorded = 1;
    event->epoch = atomic_load(&epoch);
    event->capture = vn_capture_of(stream, &event->graph);
    return SUCCESS;
}

// An event that was never recorded is complete; one of a capture cannot be asked.
int vn_event_query(vn_event_t *event) {
    if (!event) return INVALID_HANDLE;
    if (event->capture) return invalidate(event->capture, -1);
    int pending = vn_gpu()->late && event->recorded && event->epoch >= atomic_load(&epoch);
    return pending ? NOT_READY : SUCCESS;
}

// A stream that waits for an event of a capture joins that capture.
void vn_stream_wait(void *stream, vn_event_t *event) {
    if (!event || !event->capture || is_default(stream)) return;
    vn_stream_t *waiting = stream;
    pthread_mutex_lock(&lock);
    if (!waiting->capture) waiting->capture = event->capture, waiting->graph = event->graph;
    pthread_mutex_unlock(&lock);
}

void vn_synchronize(void) { atomic_fetch_add(&epoch, 1); }

int vn_capture_begin(void *stream) {
    if (is_default(stream)) return CAPTURE_UNSUPPORTED;
    vn_stream_t *begun = stream;
    pthread_mutex_lock(&lock);
    int status = begun->capture ? INVALID_VALUE : SUCCESS;
    if (!status) {
        begun->capture = ++captures;
        begun->graph = calloc(1, sizeof(vn_graph_t));
        begun->graph->capture = begun->capture;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int vn_capture_end(void *stream, vn_graph_t **graph) {
    *graph = NULL;
    if (is_default(stream) || !((vn_stream_t *)stream)->capture) return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    uint64_t ended = ((vn_stream_t *)stream)->capture;
    *graph = ((vn_stream_t *)stream)->graph;
    for (vn_stream_t *each = streams; each; each = each->next)
        if (each->capture == ended) each->capture = 0, each->graph = NULL;
    pthread_mutex_unlock(&lock);
    if (!(*graph)->invalid) return SUCCESS;
    vn_graph_delete(*graph);
    *graph = NULL;
    return CAPTURE_INVALIDATED;
}

int vn_capture_status(void *stream) {
    if (is_default(stream) || !((vn_stream_t *)stream)->capture) return 0;
    return ((vn_stream_t *)stream)->graph->invalid ? 2 : 1;
}

int vn_wait_for(void *stream) {
    uint64_t capture = vn_capture_of(stream, NULL);
    return capture ? invalidate(capture, -1) : SUCCESS;
}

int vn_wait_for_device(int device) { return invalidate(0, device); }

uint64_t vn_capture_of(void *stream, vn_graph_t **graph) {
    if (graph) *graph = is_default(stream) ? NULL : ((vn_stream_t *)stream)->graph;
    return is_default(stream) ? 0 : ((vn_stream_t *)stream)->capture;
}

int vn_work(void *stream) {
    int status = vn_capture_status(stream);
    if (status) ((vn_stream_t *)stream)->graph->nodes++;
    return status == 2 ? CAPTURE_INVALIDATED : SUCCESS;
}

size_t vn_graph_nodes(vn_graph_t *graph) { return graph->nodes; }

vn_graph_t *vn_graph_copy(vn_graph_t *graph) {
    vn_graph_t *copy = malloc(sizeof *copy);
    *copy = *graph;
    return copy;
}

void vn_graph_delete(vn_graph_t *graph) { free(graph); }
