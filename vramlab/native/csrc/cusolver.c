// cuSOLVER's handles. Its solvers' workspaces are not known, so asking for them is refused.
#include "core/core.h"

#include <stdlib.h>

API int cusolverDnCreate(void ***handle) { // a handle keeps its stream
    *handle = calloc(1, sizeof(void *));
    return *handle ? 0 : 2;
}
API int cusolverDnDestroy(void **handle) {
    free(handle);
    return 0;
}
API int cusolverDnSetStream(void **handle, void *stream) {
    *handle = stream;
    return 0;
}
API int cusolverDnGetStream(void **handle, void **stream) {
    *stream = *handle;
    return 0;
}
