"""Liger-Kernel's benchmark of kernels: the rows of plain PyTorch.

Each of its programs builds Liger's module beside PyTorch's, so the parameters of both are in the
figures, and calls a function ten times, each after `reset_peak_memory_stats()`. The rows of a
kernel come after those that measure its speed, so cuBLAS's workspaces are there already.

Source: benchmark/scripts in linkedin/Liger-Kernel, at the commits that brought the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional

_DEVICE = "cuda"


def peak(function: Callable[[], object]) -> dict[str, int]:
    """Return the median peak in bytes of ten calls."""
    peaks = []
    for _ in range(10):
        torch.cuda.reset_peak_memory_stats()
        function()
        peaks.append(torch.cuda.max_memory_allocated())
    return {"peak": int(median(peaks))}


def with_backward(
    make: Callable[[], torch.Tensor], gradient: torch.Tensor | None = None
) -> dict[str, int]:
    """Return the peak in bytes of making a tensor and of its backward pass."""
    return peak(lambda: make().backward(gradient, retain_graph=True))


def _dtype(name: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def cross_entropy(tokens: int, vocabulary: int) -> dict[str, int]:
    """Measure the loss of logits, with its gradient."""
    logits = torch.randn(tokens, vocabulary, requires_grad=True, device=_DEVICE)
    labels = torch.randint(vocabulary, (tokens,), device=_DEVICE)
    return peak(lambda: functional.cross_entropy(logits, labels).backward())


def linear_cross_entropy(tokens: int, width: int, vocabulary: int, dtype: str) -> dict[str, int]:
    """Measure a language model's head and its loss."""
    head, _twin = (
        nn.Linear(width, vocabulary, bias=False, dtype=_dtype(dtype)).to(_DEVICE) for _ in range(2)
    )
    hidden = torch.randn(tokens, width, requires_grad=True, dtype=_dtype(dtype), device=_DEVICE)
    labels = torch.randint(vocabulary, (tokens,), device=_DEVICE)
    return peak(lambda: functional.cross_entropy(head(hidden), labels).backward())


def kl_divergence(tokens: int, vocabulary: int) -> dict[str, int]:
    """Measure a Kullback-Leibler divergence between two distributions."""
    found = torch.randn(tokens, vocabulary, requires_grad=True, device=_DEVICE).log_softmax(-1)
    wanted = torch.randn(tokens, vocabulary, device=_DEVICE).softmax(-1)
    return with_backward(lambda: functional.kl_div(found, wanted, reduction="batchmean"))


def js_divergence(tokens: int, vocabulary: int) -> dict[str, int]:
    """Measure a Jensen-Shannon divergence between two distributions."""
    found = torch.randn(tokens, vocabulary, requires_grad=True, device=_DEVICE).log_softmax(-1)
    wanted = torch.randn(tokens, vocabulary, device=_DEVICE).log_softmax(-1)

    def divergence() -> torch.Tensor:
        middle = torch.lerp(torch.exp(wanted), torch.exp(found), 0.5)
        parts = [
            functional.kl_div(torch.log(middle), each, reduction="batchmean", log_target=True)
            for each in (wanted, found)
        ]
        return 0.5 * parts[0] + 0.5 * parts[1]

    return with_backward(divergence)


def total_variation(tokens: int, vocabulary: int) -> dict[str, int]:
    """Measure the total variation distance between two distributions."""
    found = torch.randn(tokens, vocabulary, requires_grad=True, device=_DEVICE).softmax(-1)
    wanted = torch.randn(tokens, vocabulary, device=_DEVICE).softmax(-1)
    return with_backward(lambda: torch.sum(torch.abs(found - wanted) / 2.0) / tokens)


def _normed(layer: Callable[[], nn.Module], shape: Sequence[int], dtype: str) -> dict[str, int]:
    norm, _twin = layer().to(_DEVICE), layer().to(_DEVICE)
    x = torch.randn(*shape, dtype=_dtype(dtype), device=_DEVICE)
    gradient = torch.randn_like(x)
    x.requires_grad_(True)
    return with_backward(lambda: norm(x), gradient)


def layer_norm(rows: int, width: int, dtype: str) -> dict[str, int]:
    """Measure PyTorch's LayerNorm."""
    return _normed(lambda: nn.LayerNorm(width, eps=1e-6), (rows, width), dtype)


def group_norm(
    rows: int, channels: int, channels_per_group: int, width: int, dtype: str
) -> dict[str, int]:
    """Measure PyTorch's GroupNorm."""
    groups = channels // channels_per_group
    return _normed(lambda: nn.GroupNorm(groups, channels), (rows, channels, width), dtype)


class LlamaNorm(nn.Module):
    """The norm of Llama: numbers in float32 on the way, as in transformers' LlamaRMSNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


def rms_norm(rows: int, width: int, dtype: str) -> dict[str, int]:
    """Measure Llama's RMSNorm."""
    return _normed(lambda: LlamaNorm(width), (rows, width), dtype)


def elementwise(
    function: Callable[[torch.Tensor], torch.Tensor], shape: int | str, dtype: str
) -> dict[str, int]:
    """Return the peak in bytes of a function of one tensor, and of its backward pass."""
    sizes = [int(size) for size in str(shape).split("x")]
    x = torch.randn(sizes, device=_DEVICE, dtype=_dtype(dtype), requires_grad=True)

    def step() -> None:
        y = function(x)
        y.backward(torch.ones_like(y), retain_graph=True)

    return peak(step)


def softmax(shape: int | str, dtype: str) -> dict[str, int]:
    """Measure a softmax over the last dimension."""
    return elementwise(lambda x: x.softmax(-1), shape, dtype)


def relu_squared(shape: int | str, dtype: str) -> dict[str, int]:
    """Measure a squared ReLU."""
    return elementwise(lambda x: torch.square(torch.relu(x)), shape, dtype)


class _GatedMLP(nn.Module):
    """The MLP of Llama and of Gemma."""

    def __init__(self, width: int, inner: int, activation: str) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.activation = nn.SiLU() if activation == "silu" else nn.GELU(approximate="tanh")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(self.activation(self.gate(x)) * self.up(x))
        return y


def gated_mlp(
    batch: int, length: int, width: int, inner: int, activation: str, mode: str, dtype: str
) -> dict[str, int]:
    """Measure a gated MLP: its forward pass, its backward pass, or both (`full`)."""
    return mlp(_GatedMLP(width, inner, activation), batch, length, width, mode, dtype)


class _InParts(torch.autograd.Function):
    """A function of tokens, one part of them at a time, computed again for backward."""

    @staticmethod
    def forward(
        ctx: Any, function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, count: int
    ) -> torch.Tensor:
        ctx.function, ctx.count = function, count
        ctx.save_for_backward(x)
        with torch.no_grad():
            return torch.cat([function(part) for part in x.chunk(count, dim=-2)], dim=-2)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        x = x.detach().requires_grad_(True)
        flat, gradient = (each.view(-1, x.shape[-1]) for each in (x, gradients[0]))
        of_x = torch.zeros_like(flat)
        pieces = [each.chunk(ctx.count) for each in (flat, gradient, of_x)]
        for part, of_result, of_part in zip(*pieces, strict=True):
            part.requires_grad_(True)
            part.grad = of_part
            with torch.enable_grad():
                result = ctx.function(part)
            torch.autograd.backward(result, of_result)
        return None, of_x.view_as(x), None


class _TiledMLP(_GatedMLP):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = _InParts.apply(super().forward, x, 4)  # type: ignore[no-untyped-call]
        return y


def tiled_mlp(
    batch: int, length: int, width: int, inner: int, activation: str, mode: str, dtype: str
) -> dict[str, int]:
    """Measure DeepSpeed's gated MLP that takes a quarter of the tokens at a time."""
    return mlp(_TiledMLP(width, inner, activation), batch, length, width, mode, dtype)


def mlp(
    layer: nn.Module, batch: int, length: int, width: int, mode: str, dtype: str
) -> dict[str, int]:
    """Return the peak in bytes of a layer's forward pass, its backward pass, or both."""
    shape = (batch, length, width)
    x = torch.randn(shape, device=_DEVICE, dtype=_dtype(dtype), requires_grad=True)
    layer = layer.to(_DEVICE).to(_dtype(dtype))
    use_cublas()
    if mode == "forward":
        return peak(lambda: layer(x))
    if mode == "backward":
        gradient = torch.randn_like(x)
        y = layer(x)
        return peak(lambda: y.backward(gradient, retain_graph=True))

    def step() -> None:
        y = layer(x)
        y.backward(torch.randn_like(y), retain_graph=True)

    return peak(step)


def use_cublas() -> None:
    """Let both threads multiply, as the rows that measure speed did."""
    small = nn.Linear(64, 64, bias=False).to(_DEVICE)
    small(torch.randn(64, 64, device=_DEVICE)).sum().backward()
