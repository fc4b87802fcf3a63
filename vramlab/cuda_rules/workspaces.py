"""What cuBLAS keeps out of the caching allocator once a matrix product ran.

Source: aten/src/ATen/cuda/CublasHandlePool.cpp (`parseChosenWorkspaceSize`), and
aten/src/ATen/cuda/CUDABlas.cpp for cuBLASLt, PyTorch 1.13 to 2.13. Default settings only: no
CUBLAS_WORKSPACE_CONFIG.
"""

from __future__ import annotations

from vramlab.units import KIB, MIB

BEFORE_HOPPER_BYTES = 2 * 4096 * KIB + 8 * 16 * KIB
""":4096:2:16:8, two buffers of 4096 KiB and eight of 16 KiB: document 001's 8.125 MiB."""

HOPPER_BYTES = 32 * MIB

CUBLASLT_BYTES = 1 * MIB


def cublas_bytes(compute_capability: tuple[int, int], torch_version: tuple[int, int]) -> int:
    """The workspace that one thread's cuBLAS handle keeps for one stream.

    None before 2.0: cuBLAS then allocated by itself, and the caching allocator did not see it.
    The backward pass runs on a thread of its own, so a training process keeps this twice.
    """
    if torch_version < (2, 0):
        return 0
    if compute_capability == (9, 0) and torch_version >= (2, 1):
        return HOPPER_BYTES
    if compute_capability[0] in (10, 12) and torch_version >= (2, 12):
        return HOPPER_BYTES
    return BEFORE_HOPPER_BYTES


def kept_by_linear_bytes(
    compute_capability: tuple[int, int], torch_version: tuple[int, int], bias: bool = True
) -> int:
    """What the first forward pass of a Linear layer leaves behind in the calling thread.

    With a bias the product is cuBLASLt's, which from 2.9 to 2.11 kept 1 MiB of its own besides, and
    since 2.12 shares cuBLAS's workspace.
    """
    kept_bytes = cublas_bytes(compute_capability, torch_version)
    if bias and (2, 9) <= torch_version < (2, 12):
        kept_bytes += CUBLASLT_BYTES
    return kept_bytes
