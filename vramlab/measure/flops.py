"""Count FLOPs with torch's FlopCounterMode, also of attention whose query heads share keys.

    with count_flops() as counter:
        train_one_step()
    counter.get_total_flops()

PyTorch 2.11's counter refuses shapes in which heads of the query share one of the keys and values.
They are counted as if each had its own, which is what the kernels compute.
"""

from __future__ import annotations

import logging

import torch

# A CUDA build warns here where triton is missing, whose kernels are not counted.
logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)

from torch.utils.flop_counter import (  # noqa: E402
    FlopCounterMode,
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

__all__ = ["count_flops", "flop_registry"]

aten = torch.ops.aten

Shape = tuple[int, ...]


def count_flops() -> FlopCounterMode:
    """Make a counter of FLOPs that prints nothing."""
    kernels = ("flash", "efficient", "cudnn")
    forward = {getattr(aten, f"_scaled_dot_product_{name}_attention"): _forward for name in kernels}
    backward = {
        getattr(aten, f"_scaled_dot_product_{name}_attention_backward"): _backward
        for name in kernels
    }
    return FlopCounterMode(display=False, custom_mapping={**forward, **backward})


def _forward(query: Shape, key: Shape, value: Shape, *_: object, **__: object) -> int:
    flops: int = sdpa_flop_count(query, _with_heads_of(query, key), _with_heads_of(query, value))
    return flops


def _backward(
    gradient: Shape, query: Shape, key: Shape, value: Shape, *_: object, **__: object
) -> int:
    flops: int = sdpa_backward_flop_count(
        gradient, query, _with_heads_of(query, key), _with_heads_of(query, value)
    )
    return flops


def _with_heads_of(query: Shape, other: Shape) -> Shape:
    """(B, H, S, E) of keys or values, with as many heads as the query has."""
    return (other[0], query[1], *other[2:])
