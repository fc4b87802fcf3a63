"""Lesson 18: two blocks of a language model, written out, compiled, and as Liger's kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from vramlab_course.libraries.measuring import library, meet_cublas, step_sizes
from vramlab_course.libraries.results import LibraryRow, versioned

ROWS, WIDTH, INNER = 8192, 1024, 4096


class _Block(nn.Module):
    """RMSNorm and SwiGLU, as transformers' LlamaRMSNorm and LlamaMLP compute them."""

    def __init__(self, norm: Callable[[Tensor, Tensor], Tensor], gate: _Gate) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.left, self.right = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)
        self.norm, self.gate = norm, gate
        self.to("cuda", torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x, self.scale)
        hidden: Tensor = self.down(self.gate(self.left(normed), self.right(normed)))
        return hidden


_Gate = Callable[[Tensor, Tensor], Tensor]


def measure() -> list[LibraryRow]:
    """Measure a block in plain PyTorch, with fused operators of PyTorch and Liger, and compiled."""
    meet_cublas(torch.bfloat16)
    x = torch.zeros(ROWS, WIDTH, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    norms, gates = library("liger_kernel.ops.rms_norm"), library("liger_kernel.ops.swiglu")

    def liger_norm(x: Tensor, scale: Tensor) -> Tensor:
        normed: Tensor = norms.LigerRMSNormFunction.apply(x, scale, 1e-6, 0.0, "llama", False)
        return normed

    def liger_gate(left: Tensor, right: Tensor) -> Tensor:
        hidden: Tensor = gates.LigerSiLUMulFunction.apply(left, right)
        return hidden

    blocks = {
        "written out": _Block(_norm, _gate),
        "with PyTorch's rms_norm": _Block(
            lambda x, scale: functional.rms_norm(x, (WIDTH,), scale, 1e-6), _gate
        ),
        versioned("liger-kernel", "RMSNorm and SwiGLU"): _Block(liger_norm, liger_gate),
        "torch.compile": _Block(_norm, _gate),
    }
    blocks["torch.compile"].compile()
    return [
        LibraryRow(
            name,
            step_sizes(partial(block, x), (x, *block.parameters()), "left by forward", "peak"),
        )
        for name, block in blocks.items()
    ]


def _norm(x: Tensor, scale: Tensor) -> Tensor:
    wide = x.float()
    normed: Tensor = scale * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(
        x.dtype
    )
    return normed


def _gate(left: Tensor, right: Tensor) -> Tensor:
    return functional.silu(left) * right
