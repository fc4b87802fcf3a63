"""The least time that work can take on a GPU: by memory, by arithmetic, or by the way to the host.

All of it follows from figures of the catalogue (`vramlab/gpus.toml`, each beside its source), which
say what a GPU does at best. No time here is measured, and nothing takes less: real kernels and
copies come near these times when they are large, and stay far above them when they are small. How
near is `MATMUL`, `MEMORY` and `LINK`.

The roofline: work of so many FLOPs on so many bytes takes at least as long as its arithmetic at
peak, and at least as long as its bytes at full bandwidth. Which of the two is longer depends on
FLOPs per byte alone.
Source: S. Williams, A. Waterman, D. Patterson, "Roofline", Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from typing import Literal, get_args

from vramlab.catalogue import GPUModel

Arithmetic = Literal["float32", "tf32", "float16", "bfloat16", "float8"]
"""In which format matrices are multiplied.

float32 works outside tensor cores, and is what PyTorch does with float32 tensors; tf32 is float32
tensors on tensor cores, after `torch.backends.cuda.matmul.allow_tf32 = True`. The others are of
tensor cores, dense, accumulated in float32.
"""

Bound = Literal["memory", "compute"]
"""What limits work at best: bytes over the memory's bandwidth, or FLOPs over the peak."""

MATMUL = 0.80
"""Fraction of peak FLOP/s: 7.916e14 of 9.894e14 for a large bfloat16 product on an H100
with PyTorch 2.11 (`assets/recordings/h100/README.md`)."""
MEMORY = 0.89
"""Fraction of peak bandwidth: 2.983e12 of 3.352e12 bytes/s for a large copy on that H100."""
LINK = 0.80
"""Fraction of a link's bandwidth that a collective has. Assumed, not measured."""

_PEAKS = {
    "float32": "fp32_flops_per_s",
    "tf32": "tf32_tensor_flops_per_s",
    "float16": "fp16_tensor_flops_per_s",
    "bfloat16": "bf16_tensor_flops_per_s",
    "float8": "fp8_tensor_flops_per_s",
}


def copy_seconds(moved_bytes: int, gpu: GPUModel) -> float:
    """Return the least time for bytes between host and GPU, one way, over the link of this GPU.

    `catalogue.link_bytes_per_s` has the arithmetic of PCI Express. What goes there and what comes
    back can travel at the same time, each at this rate.

    The host's side can be slower: memory that is not pinned, fewer lanes on the board, other GPUs
    on the same switch.
    """
    return moved_bytes / gpu.host_bandwidth_bytes_per_s


def memory_seconds(moved_bytes: int, gpu: GPUModel) -> float:
    """Return the least time for bytes between the GPU's memory and its chip, both ways together."""
    return moved_bytes / gpu.memory_bandwidth_bytes_per_s


def arithmetics_of(gpu: GPUModel) -> tuple[Arithmetic, ...]:
    """Return the formats that the GPU has units for."""
    formats: tuple[Arithmetic, ...] = get_args(Arithmetic)
    return tuple(name for name in formats if getattr(gpu, _PEAKS[name]) is not None)


def peak_flops_per_s(gpu: GPUModel, arithmetic: Arithmetic = "float32") -> float:
    """Look up the FLOPs of a second at best.

    Raises:
        ValueError: not a format of `Arithmetic`, or the GPU has no units for it.
    """
    if arithmetic not in _PEAKS:
        known = ", ".join(get_args(Arithmetic))
        raise ValueError(f"No arithmetic named {arithmetic!r}. Known: {known}.")
    peak: float | None = getattr(gpu, _PEAKS[arithmetic])
    if peak is None:
        has = ", ".join(arithmetics_of(gpu))
        raise ValueError(f"{gpu.name} has no units for {arithmetic}. It has: {has}.")
    return peak


def compute_seconds(flops: float, gpu: GPUModel, arithmetic: Arithmetic = "float32") -> float:
    """Return the least time for so many FLOPs; a multiplication with an addition counts as two."""
    return flops / peak_flops_per_s(gpu, arithmetic)


def arithmetic_intensity(flops: float, moved_bytes: int) -> float:
    """Divide FLOPs by the bytes that are read or written for them.

    Raises:
        ValueError: work that moves nothing has no intensity.
    """
    if moved_bytes <= 0:
        raise ValueError(f"moved_bytes is {moved_bytes}: intensity needs at least one byte.")
    return flops / moved_bytes


def ridge_flops_per_byte(gpu: GPUModel, arithmetic: Arithmetic = "float32") -> float:
    """Find where the roof bends: work with fewer FLOPs per byte waits for memory, at best."""
    return peak_flops_per_s(gpu, arithmetic) / gpu.memory_bandwidth_bytes_per_s


def roof_flops_per_s(intensity: float, gpu: GPUModel, arithmetic: Arithmetic = "float32") -> float:
    """Return the roof: FLOPs a second that work of this many FLOPs per byte reaches at best."""
    return min(peak_flops_per_s(gpu, arithmetic), intensity * gpu.memory_bandwidth_bytes_per_s)


def least_seconds(
    flops: float, moved_bytes: int, gpu: GPUModel, arithmetic: Arithmetic = "float32"
) -> float:
    """Return the least time of a kernel, whose arithmetic and memory work at the same time."""
    return max(compute_seconds(flops, gpu, arithmetic), memory_seconds(moved_bytes, gpu))


def bound(
    flops: float, moved_bytes: int, gpu: GPUModel, arithmetic: Arithmetic = "float32"
) -> Bound:
    """Return what limits this work at best. On the ridge itself both do; that counts as compute."""
    waits = compute_seconds(flops, gpu, arithmetic) < memory_seconds(moved_bytes, gpu)
    return "memory" if waits else "compute"
