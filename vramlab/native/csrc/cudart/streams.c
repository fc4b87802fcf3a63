// CUDA Runtime API, "Stream Management", "Event Management".
#include "cudart.h"

// A stream of the current GPU.
API int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    int status = vn_load_stream(vn_device);
    if (!status) *stream = vn_stream_new(flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
    return failed(status);
}
API int cudaStreamCreateWithFlags(void **stream, unsigned flags) { return cudaStreamCreateWithPriority(stream, flags, 0); }
API int cudaStreamCreate(void **stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

// Let a stream go; its work goes on.
API int cudaStreamDestroy(void *stream) { return failed(vn_stream_delete(stream)); }

// What a stream was made with.
API int cudaStreamGetPriority(void *stream, int *priority) {
    *priority = vn_stream_priority(stream);
    return SUCCESS;
}
API int cudaStreamGetFlags(void *stream, unsigned *flags) {
    *flags = vn_stream_flags(stream);
    return SUCCESS;
}
API int cudaStreamGetId(void *stream, unsigned long long *id) {
    *id = vn_stream_id(stream);
    return SUCCESS;
}
API int cudaStreamGetDevice(void *stream, int *device) {
    *device = vn_stream_device(stream);
    return SUCCESS;
}

// Wait until a stream's work is done. A stream that captures cannot be waited for: its capture is lost (CUDA C++
// Programming Guide, "Creating a Graph Using Stream Capture").
API int cudaStreamSynchronize(void *stream) {
    int status = vn_wait_for(stream);
    if (!status) vn_synchronize();
    return failed(status);
}

// Whether a stream's work is done.
API int cudaStreamQuery(void *stream) {
    return failed(vn_wait_for(stream));
}

// Let a stream wait for an event.
API int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) {
    (void)flags;
    if (!event) return failed(INVALID_HANDLE);
    vn_stream_wait(stream, event);
    return SUCCESS;
}

// Call a function when the stream comes there: at once.
API int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
    vn_work(stream);
    if (!vn_capture_of(stream, NULL)) function(data);
    return SUCCESS;
}
API int cudaStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *data, unsigned flags) {
    if (flags) return failed(INVALID_VALUE);
    function(stream, SUCCESS, data);
    return SUCCESS;
}

// Events.
API int cudaEventCreateWithFlags(void **event, unsigned flags) {
    int status = vn_use_device(vn_device);
    if (!status) *event = vn_event_new(flags);
    return failed(status);
}
API int cudaEventCreate(void **event) { return cudaEventCreateWithFlags(event, 0); }
API int cudaEventDestroy(void *event) {
    vn_event_delete(event);
    return SUCCESS;
}
API int cudaEventRecord(void *event, void *stream) { return failed(vn_event_record(event, stream)); }
API int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) {
    (void)flags;
    return cudaEventRecord(event, stream);
}

// Whether the work before an event is done; cudaErrorNotReady if not.
API int cudaEventQuery(void *event) { return failed(vn_event_query(event)); }

// Wait for it.
API int cudaEventSynchronize(void *event) {
    vn_synchronize();
    return failed(vn_event_query(event));
}

// Milliseconds between two events. No time passes here: always 1, and the report says so.
API int cudaEventElapsedTime(float *milliseconds, void *start, void *end) {
    if (!start || !end) return failed(INVALID_HANDLE);
    COUNT(ASSUMED, "libcudart", "cudaEventElapsedTime: always 1 ms");
    *milliseconds = 1.0f;
    return SUCCESS;
}
API int cudaEventElapsedTime_v2(float *milliseconds, void *start, void *end) {
    return cudaEventElapsedTime(milliseconds, start, end);
}

// Where a profiler begins and ends.
API int cudaProfilerStart(void) { return SUCCESS; }
API int cudaProfilerStop(void) { return SUCCESS; }
