"""Liger-Kernel's benchmark of kernels: the rows of its own Triton kernels.

Its functions allocate every buffer in PyTorch and launch kernels that fill them. Each program
builds PyTorch's module beside Liger's, as for the rows of plain PyTorch. liger-kernel is that of
the rows' date (`with` in measurements.json): a newer release may allocate other buffers.

Source: benchmark/scripts in linkedin/Liger-Kernel, at the commits that brought the rows.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from benchmarks.measurements import liger as plain

_DEVICE = "cuda"


def _of_liger(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"liger_kernel.transformers.{module}"), name)


def _distributions(tokens: int, vocabulary: int, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    make = getattr(torch, name)
    found = make(torch.randn(tokens, vocabulary, requires_grad=True, device=_DEVICE), -1)
    return found, make(torch.randn(tokens, vocabulary, device=_DEVICE), -1)


def cross_entropy(tokens: int, vocabulary: int) -> dict[str, int]:
    """Measure the loss of logits, with its gradient."""
    loss = _of_liger("cross_entropy", "LigerCrossEntropyLoss")()
    logits = torch.randn(tokens, vocabulary, requires_grad=True, device=_DEVICE)
    labels = torch.randint(vocabulary, (tokens,), device=_DEVICE)
    return plain.peak(lambda: loss(logits, labels).backward())


def linear_cross_entropy(tokens: int, width: int, vocabulary: int, dtype: str) -> dict[str, int]:
    """Measure a language model's head and its loss."""
    kind = getattr(torch, dtype)
    head, _twin = (
        nn.Linear(width, vocabulary, bias=False, dtype=kind).to(_DEVICE) for _ in range(2)
    )
    loss = _of_liger("fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyLoss")()
    hidden = torch.randn(tokens, width, requires_grad=True, dtype=kind, device=_DEVICE)
    labels = torch.randint(vocabulary, (tokens,), device=_DEVICE)
    plain.use_cublas()
    return plain.peak(lambda: loss(head.weight, hidden, labels).backward())


def kl_divergence(tokens: int, vocabulary: int) -> dict[str, int]:
    """Measure a Kullback-Leibler divergence between two distributions."""
    loss = _of_liger("kl_div", "LigerKLDIVLoss")(reduction="batchmean")
    found = torch.randn(tokens, vocabulary, requires_grad=True, device=_DEVICE).log_softmax(-1)
    wanted = torch.randn(tokens, vocabulary, device=_DEVICE).softmax(-1)
    return plain.with_backward(lambda: loss(found, wanted))


def js_divergence(tokens: int, vocabulary: int, gradient: str) -> dict[str, int]:
    """Measure a Jensen-Shannon divergence; newer scripts give the loss a random gradient."""
    loss = _of_liger("jsd", "LigerJSD")()
    found, wanted = _distributions(tokens, vocabulary, "log_softmax")

    def step() -> None:
        y = loss(found, wanted)
        y.backward(torch.randn_like(y) if gradient == "random" else None, retain_graph=True)

    return plain.peak(step)


def total_variation(tokens: int, vocabulary: int) -> dict[str, int]:
    """Measure the total variation distance between two distributions."""
    loss = _of_liger("tvd", "LigerTVDLoss")(reduction="batchmean")
    found, wanted = _distributions(tokens, vocabulary, "softmax")
    return plain.with_backward(lambda: loss(found, wanted))


def _normed(norm: nn.Module, twin: nn.Module, *shape: int, dtype: str) -> dict[str, int]:
    norm, _twin = norm.to(_DEVICE), twin.to(_DEVICE)
    x = torch.randn(*shape, dtype=getattr(torch, dtype), device=_DEVICE)
    gradient = torch.randn_like(x)
    x.requires_grad_(True)
    return plain.with_backward(lambda: norm(x), gradient)


def layer_norm(rows: int, width: int, dtype: str) -> dict[str, int]:
    """Measure Liger's LayerNorm."""
    norm = _of_liger("layer_norm", "LigerLayerNorm")(width, eps=1e-6)
    return _normed(norm, nn.LayerNorm(width), rows, width, dtype=dtype)


def rms_norm(rows: int, width: int, dtype: str) -> dict[str, int]:
    """Measure Liger's RMSNorm."""
    norm = _of_liger("rms_norm", "LigerRMSNorm")(width, eps=1e-6)
    return _normed(norm, plain.LlamaNorm(width), rows, width, dtype=dtype)


def group_norm(
    rows: int, channels: int, channels_per_group: int, width: int, dtype: str
) -> dict[str, int]:
    """Measure Liger's GroupNorm."""
    groups = channels // channels_per_group
    norm = _of_liger("group_norm", "LigerGroupNorm")(channels, groups, eps=1e-6)
    return _normed(norm, nn.GroupNorm(groups, channels), rows, channels, width, dtype=dtype)


def plain_sparsemax(rows: int, width: int, dtype: str) -> dict[str, int]:
    """Measure a sparsemax in plain PyTorch, with a sort and a running sum."""

    def layer(x: torch.Tensor) -> torch.Tensor:
        ordered, _ = torch.sort(x, dim=-1, descending=True)
        sums = torch.cumsum(ordered, dim=-1)
        count = torch.arange(1, width + 1, device=x.device, dtype=x.dtype).view(1, width)
        bound = 1 + count * ordered
        support = bound > sums
        size = support.sum(dim=-1, keepdim=True).clamp(min=1)
        total = (ordered * support).sum(dim=-1, keepdim=True)
        threshold = (total - 1) / size
        return torch.clamp(x - threshold, min=0)

    x = torch.randn(rows, width, dtype=getattr(torch, dtype), device=_DEVICE)
    gradient = torch.randn_like(x)
    x.requires_grad_(True)
    return plain.with_backward(lambda: layer(x), gradient)


def softmax(shape: int | str, dtype: str) -> dict[str, int]:
    """Measure a softmax over the last dimension."""
    return plain.elementwise(_of_liger("softmax", "LigerSoftmax")(), shape, dtype)


def relu_squared(shape: int | str, dtype: str) -> dict[str, int]:
    """Measure a squared ReLU."""
    return plain.elementwise(_of_liger("relu_squared", "LigerReLUSquared")(), shape, dtype)


class _NormOfSum(nn.Module):
    """The sum of two tensors, and its norm in a module of its own, beside a weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.norm = _of_liger("rms_norm", "LigerRMSNorm")(width, 1e-6, in_place=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        added = x.to(torch.float32) + y.to(torch.float32)
        return self.weight * self.norm(added).to(x.dtype), added.to(x.dtype)


class _PlainNormOfSum(plain.LlamaNorm):
    """The sum of two tensors, and its norm in plain PyTorch."""

    def forward(  # type: ignore[override]
        self, x: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        kind = x.dtype
        x = x.to(torch.float32)
        y = y.to(torch.float32)
        x = x + y
        y = x
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + 1e-6)
        return self.weight * x.to(kind), y.to(kind)


def norm_of_sum(rows: int, width: int, dtype: str, provider: str) -> dict[str, int]:
    """Measure a residual sum and its norm: `fused`, `norm` (only the norm is Liger's), `plain`."""
    layers = {
        "fused": _of_liger("fused_add_rms_norm", "LigerFusedAddRMSNorm")(width, eps=1e-6),
        "plain": _PlainNormOfSum(width),
        "norm": _NormOfSum(width),
    }
    for layer in layers.values():
        layer.to(_DEVICE)
    x, y = (torch.randn(rows, width, dtype=getattr(torch, dtype), device=_DEVICE) for _ in "xy")
    gradients = torch.randn_like(x), torch.randn_like(y)
    x.requires_grad_(True), y.requires_grad_(True)
    used = layers[provider]

    def step() -> None:
        normed, added = used(x, y)
        torch.autograd.backward((normed, added), gradients)

    return plain.peak(step)


def gated_mlp(
    batch: int, length: int, width: int, inner: int, activation: str, mode: str, dtype: str
) -> dict[str, int]:
    """Measure a gated MLP: its forward pass, its backward pass, or both (`full`)."""
    layer = _mlp("GEGLU", "SwiGLU", width, inner, activation)
    return plain.mlp(layer, batch, length, width, mode, dtype)


def tiled_mlp(
    batch: int, length: int, width: int, inner: int, activation: str, mode: str, dtype: str
) -> dict[str, int]:
    """Measure a gated MLP that takes a quarter of the tokens at a time."""
    layer = _mlp("TiledGEGLU", "TiledSwiGLU", width, inner, activation, num_shards=4)
    return plain.mlp(layer, batch, length, width, mode, dtype)


def _mlp(gelu: str, silu: str, width: int, inner: int, activation: str, **how: int) -> Any:
    config = SimpleNamespace(
        hidden_size=width,
        intermediate_size=inner,
        hidden_act="silu" if activation == "silu" else "gelu_pytorch_tanh",
    )
    name = silu if activation == "silu" else gelu
    module = "tiled_mlp" if how else name.lower()
    return _of_liger(module, f"Liger{name}MLP")(config=config, **how)


def rotary(length: int, width: int, provider: str) -> dict[str, int]:
    """Measure Llama's rotary embedding in bfloat16, 32 heads of queries and 8 of keys."""
    heads, size = (32, 8), width // 32
    inverse = 1.0 / (10_000 ** (torch.arange(0, size, 2, device=_DEVICE).float() / size))
    query, key = (
        torch.randn(
            (1, length, count, size), device=_DEVICE, requires_grad=True, dtype=torch.bfloat16
        ).transpose(1, 2)
        for count in heads
    )
    gradients = torch.randn_like(query), torch.randn_like(key)
    positions = torch.arange(length, device=_DEVICE).unsqueeze(0)
    angles = (inverse[None, :, None] @ positions[:, None, :].float()).transpose(1, 2)
    angles = torch.cat((angles, angles), dim=-1)
    cosine, sine = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
    del angles
    turn = _turned if provider == "plain" else _of_liger("rope", "liger_rotary_pos_emb")

    def step() -> None:
        out = turn(query, key, cosine, sine, positions)
        torch.autograd.grad(out, (query, key), gradients, allow_unused=True, retain_graph=True)

    return plain.peak(step)


def _half_turned(x: torch.Tensor) -> torch.Tensor:
    first = x[..., : x.shape[-1] // 2]
    second = x[..., x.shape[-1] // 2 :]
    return torch.cat((-second, first), dim=-1)


def _turned(
    query: torch.Tensor,
    key: torch.Tensor,
    cosine: torch.Tensor,
    sine: torch.Tensor,
    _positions: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    cosine, sine = cosine.unsqueeze(1), sine.unsqueeze(1)
    turned = (query * cosine) + (_half_turned(query) * sine)
    return turned, (key * cosine) + (_half_turned(key) * sine)
