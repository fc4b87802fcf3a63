// cuSPARSE's handles. Its products' workspaces are not known, so asking for them is refused.
#include "core/core.h"

#include <stdlib.h>

API int cusparseCreate(void ***handle) { // a handle keeps its stream
    *handle = calloc(1, sizeof(void *));
    return *handle ? 0 : 2;
}
API int cusparseDestroy(void **handle) {
    free(handle);
    return 0;
}
API int cusparseSetStream(void **handle, void *stream) {
    *handle = stream;
    return 0;
}
API const char *cusparseGetErrorString(int status) {
    return status ? "an error of cuSPARSE (vramlab's substitute; its report names the function)" : "success";
}
API const char *cusparseGetErrorName(int status) { return status ? "CUSPARSE_STATUS" : "CUSPARSE_STATUS_SUCCESS"; }
