"""NVIDIA's libraries that PyTorch calls, and how each is substituted.

A function that no source file defines is generated. It does one of two things: where its contract
is work on the GPU, or taking note of arguments, without anything written for the caller on the
host, it answers success (`computes`). Everything else answers its library's "not supported".
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Library:
    """One library."""

    stem: str
    """Its file's name up to `.so`."""
    functions: str
    """Regular expression for names of its functions, for symbols without a version."""
    not_supported: int
    """The status that means so, from the library's reference."""
    sources: tuple[str, ...] = ()
    """C files in `csrc`; patterns."""
    computes: str = "(?!)"
    """Regular expression: functions that answer success and write nothing on the host."""
    handle_has_stream: bool = False
    """Whether functions that compute get a handle first, which keeps its stream first."""
    also: tuple[str, ...] = ()
    """Functions that others than PyTorch look up, cuDNN among them."""
    always: str | None = None
    """File name under which it is made although PyTorch does not link with it."""

    def is_computing(self, function: str) -> bool:
        """Return whether a function may answer success without doing anything."""
        return re.match(self.computes, function) is not None

    def has(self, function: str) -> bool:
        """Return whether a function without version is one of this library's."""
        return re.match(self.functions, function) is not None


_DRIVER_LOOK_UPS = (
    # PyTorch's libc10_cuda and Triton look these up by name.
    *("cuCtxFromGreenCtx", "cuDevResourceGenerateDesc", "cuDevSmResourceSplitByCount"),
    *("cuDeviceGetDevResource", "cuDeviceGetUuid", "cuGreenCtxCreate", "cuGreenCtxDestroy"),
    *("cuGreenCtxStreamCreate", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"),
    *("cuMulticastAddDevice", "cuMulticastBindMem", "cuMulticastCreate", "cuMulticastUnbind"),
    *("cuCtxGetLimit", "cuCtxSetLimit", "cuLaunchKernelExHandle", "cuOccupancyMaxActiveClusters"),
    *("cuPointerGetAttributes", "cuFuncGetModule"),
    # cuDNN looks these up before it plans, and calls them when it executes.
    *("cuLibraryLoadFromFile", "cuLinkAddData", "cuLinkAddFile_v2", "cuLinkCreate"),
    *("cuLinkDestroy", "cuModuleGetGlobal_v2"),
    *("cuOccupancyMaxPotentialClusterSize", "cuDevicePrimaryCtxReset"),
    "cuDevicePrimaryCtxRelease",
)
"""Functions of the driver that others look up, and that nothing is known of."""

_COMPILER_LOOK_UPS = (
    # cuDNN looks these up before it plans attention, and calls them when it executes.
    "__nvrtcCPEx",
)

LIBRARIES = (
    # Status: cudaErrorNotSupported.
    Library("libcudart", "(__)?cuda[A-Z]", 801, ("cudart/*.c",)),
    # CUDA_ERROR_NOT_SUPPORTED.
    Library(
        "libcuda",
        "cu[A-Z](?!ile)",
        801,
        ("driver.c",),
        also=_DRIVER_LOOK_UPS,
        always="libcuda.so.1",
    ),
    # NVML_ERROR_NOT_SUPPORTED.
    Library(
        "libnvidia-ml",
        "nvml",
        3,
        ("nvml.c",),
        also=(
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetTemperature",
            "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetClockInfo",
            "nvmlDeviceGetNvLinkRemoteDeviceType",
            "nvmlDeviceGetNvLinkRemotePciInfo_v2",
        ),
        always="libnvidia-ml.so.1",
    ),
    # CUBLAS_STATUS_NOT_SUPPORTED. Not here: what answers on the host (`info` of gels, geqrf and
    # getrs; rotg), and copies between host and GPU.
    Library(
        "libcublas",
        "cublas(?!Lt)",
        15,
        ("cublas.c",),
        r"cublas(SetWorkspace_v2|SetSmCountTarget|SetAtomicsMode|Gemm\w*Ex|[SDCZH]gemm\w*"
        r"|[SDCZ](gemv|ger|geru|gerc|symm|symv|syr|syr2|syrk|syr2k|hemm|hemv|her|her2|herk|her2k"
        r"|trmm|trmv|trsm|trsv|axpy|copy|scal|swap|rot|rotm)(_v2|Batched|StridedBatched)?"
        r"|(Cs|Zd)(rot|scal)_v2|[SDCZ]getrfBatched|[SDCZ]trsmBatched)$",
        handle_has_stream=True,
    ),
    # The same status.
    Library(
        "libcublasLt",
        "cublasLt",
        15,
        ("cublaslt.c",),
        r"cublasLtMatrixTransform$",
        also=("cublasLtMatrixTransform",),  # what cuDNN links with
    ),
    # CUDNN_STATUS_NOT_SUPPORTED of version 9. Sizes that are asked for are answered or refused.
    Library(
        "libcudnn",
        "cudnn",
        3000,
        ("cudnn*.c",),
        r"cudnn(Set|BatchNormalization|Convolution|Pooling|SpatialTf|RNNForward|RNNBackward"
        r"|RestoreDropout)",
    ),
    # ncclInternalError.
    Library(
        "libnccl",
        "nccl",
        3,
        ("nccl.c",),
        r"nccl(AllGather|AllReduce|AlltoAll|Bcast|Broadcast|Reduce|ReduceScatter|Gather|Scatter|Send"
        r"|Recv|GroupStart|GroupEnd|RedOpDestroy)$",
    ),
    # NVRTC_ERROR_INTERNAL_ERROR.
    Library(
        "libnvrtc",
        "nvrtc",
        11,
        ("nvrtc.c",),
        also=_COMPILER_LOOK_UPS,
    ),
    # CUSOLVER_STATUS_NOT_SUPPORTED.
    Library("libcusolver", "cusolver", 9, ("cusolver.c",)),
    # CUSPARSE_STATUS_NOT_SUPPORTED.
    Library("libcusparse", r"cusparse(?!Lt)", 10, ("cusparse.c",)),
    # The same status.
    Library("libcusparseLt", "cusparseLt", 10),
    # CUFFT_NOT_SUPPORTED.
    Library("libcufft", "cufft", 16),
    # CURAND_STATUS_INTERNAL_ERROR.
    Library("libcurand", "curand", 999),
    # CUPTI_ERROR_NOT_SUPPORTED.
    Library("libcupti", "cupti", 27, ("cupti.c",)),
    # CU_FILE_DRIVER_NOT_INITIALIZED.
    Library("libcufile", "cuFile", 5001),
    # NVSHMEMX_ERROR_INTERNAL.
    Library("libnvshmem_host", "nvshmem", 7),
)

SUBSTITUTED = ("libcu", "libnv", "libnccl")
"""How names of NVIDIA's libraries begin."""


def of_file(file: str) -> Library:
    """Find the library that a file name such as `libcudart.so.13` is of.

    One that is not known here is substituted as well: every function of it is refused.
    """
    stem = file.partition(".so")[0]
    known = {library.stem: library for library in LIBRARIES}
    return known.get(stem) or Library(stem, "(?!)", 1)
