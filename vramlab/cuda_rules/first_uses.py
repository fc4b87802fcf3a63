"""What a process takes of a GPU when it first uses something, beside its context and allocations.

CUDA loads a kernel's code when the kernel is first launched (lazy loading, the default since CUDA
11.7 where PyTorch runs, since 12.2 everywhere), and libraries take memory when they make a handle.
None of it is PyTorch's: `torch.cuda.memory_reserved()` leaves it out, `nvidia-smi` shows it.

The recording of an H200 (PyTorch 2.11, CUDA 13.0, driver 580) has what the device had in use after
2,991 stages. In MiB, beside the context and what was reserved, it is the sum of

    90      with the first kernel of PyTorch's own
     2      for each 2 MiB of data that kernels' modules bring: 218 KiB of cuRAND's in some
     2      for each 2 MiB of kernels' code, each rounded up to 4 KiB, beyond the first 388 KiB
    64      for each cuBLAS handle; one belongs to a thread, and the backward pass has its own
     8      for each cuDNN handle, also one for each thread
    70      for the 128 streams that PyTorch makes when a program wants its first one

388 KiB is what tells all stages below from those above, in 13 rules that cross it; the next step,
2 MiB later, agrees. How much code each kind of product of cuBLAS's, or a convolution, brings is a
constant with which most stages come out.

Other GPUs have no recording. The assumptions for them are:

- The 90 MiB grow with the threads that can be resident, as contexts do. vLLM prints its
  `non_torch_memory` to 0.01 GiB, which is this with the handle and the code of its kernels: 0.16 on
  an H100 (vllm-project/vllm, pull request 12126), 0.10 on an A100-40GB, 0.08 on RTX 4090 and L40S,
  0.05 to 0.06 on A10G and RTX 3090, 0.02 to 0.04 on laptops and an RTX 3060.
- A cuBLAS handle has two of the workspaces that its reference recommends (cublasSetWorkspace):
  32 MiB on Hopper and Blackwell, 4 MiB before. TensorRT's logs say so ("Init cuBLAS/cuBLASLt: GPU
  +64", or "+8"), and those of cuDNN's "+8" on other GPUs as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramlab.cuda_rules.gpu_facts import CudaGpuFacts
from vramlab.cuda_rules.rounding import round_up
from vramlab.units import KIB, MIB

PAGE_BYTES = 2 * MIB
"""What the driver takes at once."""

CODE_ROOM_BYTES = 388 * KIB
"""What a context has left for code."""

CODE_GRAIN_BYTES = 4 * KIB
"""The code of a function is rounded up to it."""

_H200_FIRST_KERNEL_BYTES = 90 * MIB
_H200_THREADS = 132 * 2048


@dataclass(frozen=True)
class FirstUses:
    """What first uses take on one GPU, in bytes."""

    first_kernel_bytes: int
    """With the first kernel, beside its code and data."""
    cublas_handle_bytes: int
    cublas_code_bytes: int
    """Of a product of each kind: a function of cuBLAS's, and how the operands lie."""
    cudnn_handle_bytes: int
    cudnn_code_bytes: int
    """Of the kernels behind the first convolution."""
    stream_bytes: int
    """Of a stream that is not the default one."""


def first_uses(gpu: CudaGpuFacts) -> FirstUses:
    """Return what first uses take on a GPU."""
    threads = gpu.multiprocessors * gpu.max_threads_per_multiprocessor
    scaled_bytes = -(-_H200_FIRST_KERNEL_BYTES * threads // _H200_THREADS)
    workspace_bytes = (32 if gpu.compute_capability >= (9, 0) else 4) * MIB
    return FirstUses(
        first_kernel_bytes=round_up(scaled_bytes, PAGE_BYTES),
        cublas_handle_bytes=2 * workspace_bytes,
        cublas_code_bytes=736 * KIB,
        cudnn_handle_bytes=8 * MIB,
        cudnn_code_bytes=1792 * KIB,
        stream_bytes=560 * KIB,
    )
