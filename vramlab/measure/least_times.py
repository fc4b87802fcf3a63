"""The least time for recorded operators: each one's FLOPs at peak, or its bytes at full bandwidth.

    with record_operators() as calls:
        train_one_step()
    least_time(calls.calls, catalogue_model()).seconds

One kernel runs after the other, so their least times add up. What is left out makes real programs
slower, never faster: starting kernels, small shapes that leave multiprocessors idle, caches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vramlab.catalogue import GPUModel
from vramlab.cuda_rules.durations import Arithmetic, compute_seconds, memory_seconds
from vramlab.measure.operator_calls import OperatorCall

_ARITHMETIC: dict[str, Arithmetic] = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
}


@dataclass(frozen=True)
class LeastTime:
    """What operators need at least on a GPU, one after the other."""

    compute_bound_seconds: float
    """Of those that wait for arithmetic."""
    memory_bound_seconds: float
    """Of those that wait for memory."""
    flops: int
    """Of all matrix products."""
    moved_bytes: int
    """Read and written by all."""

    @property
    def seconds(self) -> float:
        """Add up the least times of all operators."""
        return self.compute_bound_seconds + self.memory_bound_seconds


def least_time(calls: Iterable[OperatorCall], gpu: GPUModel, *, tf32: bool = False) -> LeastTime:
    """Add up the least times of calls.

    Operators whose FLOPs torch does not count (element-wise ones, reductions) are taken to wait for
    memory, which they do on every GPU of the catalogue.

    Args:
        calls: from `record_operators`.
        gpu: with its bandwidth and its peaks.
        tf32: products of float32 matrices run on tensor cores.

    Raises:
        ValueError: the GPU has no units for the dtype of a product.
    """
    compute = memory = 0.0
    flops = moved_bytes = 0
    for call in calls:
        arithmetic_s = 0.0
        if call.flops:
            arithmetic = _ARITHMETIC[call.dtype or "float32"]
            if tf32 and arithmetic == "float32":
                arithmetic = "tf32"
            arithmetic_s = compute_seconds(call.flops, gpu, arithmetic)
            flops += call.flops
        moving_s = memory_seconds(call.moved_bytes, gpu)
        moved_bytes += call.moved_bytes
        if arithmetic_s >= moving_s:
            compute += arithmetic_s
        else:
            memory += moving_s
    return LeastTime(compute, memory, flops, moved_bytes)
