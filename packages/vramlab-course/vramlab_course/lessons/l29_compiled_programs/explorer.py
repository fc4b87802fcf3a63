"""Explore what a piece of a model keeps for its backward pass, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional

from vramlab.measure import Table
from vramlab.measure.partitions import Partition, kept_for_backward
from vramlab.units import MIB, format_mib, short_size
from vramlab_course.plots import draw_stacks
from vramlab_course.widgets.controls import choice, powers
from vramlab_course.widgets.explorer import View, explorer


def _norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def _gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))


def _gated(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate) * up


PIECES: dict[str, Callable[[Tensor], Tensor]] = {
    "GELU, written out": _gelu,
    "RMSNorm, written out": _norm,
    "SwiGLU's gate": _gated,
    "softmax": lambda x: x.softmax(-1),
    "norm, then GELU": lambda x: _gelu(_norm(x)),
}
_WAYS: dict[Partition, str] = {"eager": "eager", "min-cut": "compiled"}
_TRACED_ROWS = 16


@explorer("What a piece keeps, eager and compiled")
def compiled_explorer(
    piece: Annotated[str, choice("Piece", PIECES)] = "GELU, written out",
    rows: Annotated[int, powers("Rows", 64, 65536)] = 8192,
    width: Annotated[int, powers("Width", 64, 4096)] = 1024,
) -> View:
    """Show what a piece keeps besides its float32 input: a few rows are traced, and multiplied."""
    x = torch.zeros(_TRACED_ROWS, width, requires_grad=True)
    kept = {
        name: kept_for_backward(lambda t: PIECES[piece](t).sum(), x, partition=way)
        * (rows // _TRACED_ROWS)
        for way, name in _WAYS.items()
    }
    title = f"{piece}, {rows:,} x {width:,}: kept besides the input"
    return View(
        f"{piece} keeps {short_size(kept['eager'])} eager and {short_size(kept['compiled'])} "
        f"compiled, besides its input of {rows * width * 4 / MIB:,.0f} MiB.",
        draw_stacks({name: {"activations": size} for name, size in kept.items()}, title=title),
        (Table(title, ("way", "kept"), tuple((n, format_mib(k)) for n, k in kept.items())),),
    )
