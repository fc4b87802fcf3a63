"""A transformer in plain PyTorch, in the form that arXiv 2205.05198 counts: GPT-2's.

`vramlab.programs.transformer_memory` says in closed form what it takes; the sizes come from there.
Where the formula depends on how something is written, it is written so here:

- Query, key and value come from one Linear layer, and so do the gate and the values of a SwiGLU:
  under autocast every Linear layer keeps a cast of its input of its own.
- Only the loss refers to the logits.

Shapes: B batch, S sequence, W width, H heads, G heads of keys and values, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from vramlab.programs.transformer_memory import Attention, Checkpointing, Sizes

DROPOUT = 0.1
ROTARY_BASE = 10_000.0
"""Source: arXiv 2104.09864 §3.4.2."""

ADAPTER_SCALE = 2.0
"""What an adapter's output is multiplied by: alpha / rank of arXiv 2106.09685 §4.1."""

BACKENDS = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
}
"""PyTorch's fused kernels by the course's names, those of `vramlab.programs.transformer_memory`."""

Turns = tuple[Tensor, Tensor]
"""Cosines and sines (S, D) by which rotary positions turn a head's numbers."""


def turned(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn queries or keys (B, H, S, D), in pairs, by their position (arXiv 2104.09864)."""
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines


class AdaptedLinear(nn.Module):
    """A Linear layer that is not trained, and an adapter beside it that is (LoRA).

    Computed as peft 0.19 computes it, without dropout: source `Linear.forward` in
    peft/tuners/lora/layer.py; arXiv 2106.09685.
    """

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = linear
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.base(x) + self.up(self.down(x)) * ADAPTER_SCALE
        return output


class SelfAttention(nn.Module):
    """(B, S, W) to (B, S, W); step by step ("eager"), or by one of PyTorch's fused kernels."""

    def __init__(self, sizes: Sizes, dropout: float, attention: Attention, selective: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_size = sizes.heads, sizes.kv, sizes.head_size
        self.dropout, self.attention, self.selective = dropout, attention, selective
        self.causal, self.rotary = sizes.causal, sizes.rotary
        self.qkv = nn.Linear(sizes.width, sizes.qkv_width, bias=sizes.bias)
        self.project = nn.Linear(sizes.attended_width, sizes.width, bias=sizes.bias)

    def forward(self, x: Tensor, mask: Tensor | None, turns: Turns | None = None) -> Tensor:
        """Attend; `mask` (S, S) is true where a query may not look."""
        groups = (self.heads, self.kv_heads, self.kv_heads)
        parts = self.qkv(x).split([self.head_size * heads for heads in groups], dim=-1)
        query, key, value = (
            part.unflatten(-1, (heads, self.head_size)).transpose(1, 2)  # (B, heads, S, D)
            for part, heads in zip(parts, groups, strict=True)
        )
        if turns is not None:
            query, key = (turned(part, *turns) for part in (query, key))
        core = self.step_by_step if self.attention == "eager" else self.fused
        if self.selective:
            attended = checkpoint(core, query, key, value, mask, use_reentrant=False)
        else:
            attended = core(query, key, value, mask)
        output: Tensor = self.project(attended)
        return functional.dropout(output, self.dropout, self.training)

    def step_by_step(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Compute softmax(query x key) x value, one op after the other: (B, S, W)."""
        if self.kv_heads != self.heads:
            key, value = (
                shared.repeat_interleave(self.heads // self.kv_heads, dim=1)
                for shared in (key, value)
            )
        scores = query @ key.transpose(-2, -1) * self.head_size**-0.5  # (B, H, S, S)
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        weights = functional.dropout(scores.softmax(-1), self.dropout, self.training)
        return (weights @ value).transpose(1, 2).flatten(2)

    def fused(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return the same by torch's scaled_dot_product_attention: (B, S, W)."""
        shared = self.kv_heads != self.heads
        if shared and self.attention == "efficient":  # its kernel wants a key for each query
            key, value = (
                part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (key, value)
            )
            shared = False
        with sdpa_kernel(BACKENDS[self.attention]):
            attended = functional.scaled_dot_product_attention(
                query,
                key,
                value,
                dropout_p=self.dropout if self.training else 0.0,
                is_causal=self.causal,
                enable_gqa=shared,
            )
        return attended.transpose(1, 2).flatten(2)


class FeedForward(nn.Module):
    """(B, S, W) to (B, S, W) by way of (B, S, F), with GELU or SwiGLU."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.activation, self.dropout = sizes.activation, dropout
        self.up = nn.Linear(sizes.width, sizes.up_width, bias=sizes.bias)
        self.down = nn.Linear(sizes.inner, sizes.width, bias=sizes.bias)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.up(x)
        if self.activation == "gelu":
            inner = functional.gelu(inner)
        else:
            gate, values = inner.chunk(2, dim=-1)
            inner = functional.silu(gate) * values
        output: Tensor = self.down(inner)
        return functional.dropout(output, self.dropout, self.training)


class TransformerLayer(nn.Module):
    """A transformer layer with the norms in front (B, S, W)."""

    def __init__(self, sizes: Sizes, dropout: float, attention: Attention, selective: bool) -> None:
        super().__init__()
        self.attention_norm = _norm(sizes)
        self.attention = SelfAttention(sizes, dropout, attention, selective)
        self.feed_forward_norm = _norm(sizes)
        self.feed_forward = FeedForward(sizes, dropout)

    def forward(self, x: Tensor, mask: Tensor | None, turns: Turns | None = None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), mask, turns)
        output: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return output


class TransformerPart(nn.Module):
    """A transformer, or the part of one that a stage of a pipeline has: see `Sizes`.

    Tokens (B, S), or in later stages what the stage before gives (B, S, W), to logits (B, S, V), or
    in earlier stages to (B, S, W).

    Args:
        sizes: of the part.
        attention: how it is computed.
        dropout: its probability.
        checkpointing: what is recomputed in the backward pass: nothing; what attention does with
            query, key and value ("selective"); or each layer ("full").
        checkpoint_every: "full" recomputes one of so many layers, the first one of them.
        loss_chunks: how many parts of the tokens logits are computed for, one after the other, and
            again in the backward pass if there are several; only of a whole transformer.

    Attributes:
        sequence_ranks: how many ranks share each sequence between the matrices.
        first_position: where this rank's share begins.
    """

    def __init__(
        self,
        sizes: Sizes,
        *,
        attention: Attention = "eager",
        dropout: float = DROPOUT,
        checkpointing: Checkpointing = "none",
        checkpoint_every: int = 1,
        loss_chunks: int = 1,
    ) -> None:
        super().__init__()
        self.sizes, self.attention, self.dropout = sizes, attention, dropout
        self.checkpoint_layers = checkpointing == "full"
        self.checkpoint_every, self.loss_chunks = checkpoint_every, loss_chunks
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.width) if sizes.embeds else None
        learned = sizes.embeds and sizes.learned_positions
        self.positions = nn.Embedding(sizes.positions, sizes.width) if learned else None
        selective = checkpointing == "selective"
        self.layers = nn.ModuleList(
            TransformerLayer(sizes, dropout, attention, selective) for _ in range(sizes.layers)
        )
        self.norm = _norm(sizes) if sizes.predicts else None
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False) if sizes.predicts else None
        self.first_position, self.sequence_ranks = 0, 1
        self.head_size = sizes.head_size
        self.tie()

    def tie(self) -> None:
        """Let the head have the token embedding's weight, if it shall."""
        if self.sizes.shares_head and self.head is not None and self.tokens is not None:
            self.head.weight = self.tokens.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.hidden(x)
        return x if self.head is None else self.head(x)

    def hidden(self, x: Tensor) -> Tensor:
        """Return what the head gets, or the next stage (B, S, W)."""
        if self.tokens is not None:
            x = self.embed(x)
        length = x.shape[1] * self.sequence_ranks
        mask = None
        if self.sizes.causal and self.attention == "eager":
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        turns = self.turns(length, x) if self.sizes.rotary else None
        for number, layer in enumerate(self.layers):
            if self.checkpoint_layers and number % self.checkpoint_every == 0:
                x = checkpoint(layer, x, mask, turns, use_reentrant=False)
            else:
                x = layer(x, mask, turns)
        return x if self.norm is None else self.norm(x)

    def turns(self, length: int, x: Tensor) -> Turns:
        """Return how far the head's numbers at each position are turned: cosines, sines (S, D)."""
        positions = torch.arange(length, device=x.device, dtype=torch.float32)
        pairs = torch.arange(0, self.head_size, 2, device=x.device, dtype=torch.float32)
        angles = positions[:, None] * ROTARY_BASE ** (-pairs / self.head_size)
        angles = torch.cat((angles, angles), dim=-1)
        autocast = torch.is_autocast_enabled(x.device.type)
        dtype = torch.get_autocast_dtype(x.device.type) if autocast else x.dtype
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def embed(self, tokens: Tensor) -> Tensor:
        """Embed what the tokens are, and where: (B, S) to (B, S, W)."""
        assert self.tokens is not None
        x: Tensor = self.tokens(tokens)
        if self.positions is not None:
            first, length = self.first_position, x.shape[1]
            x = x + self.positions(torch.arange(first, first + length, device=tokens.device))
        return functional.dropout(x, self.dropout, self.training)


class Transformer(TransformerPart):
    """A whole one: tokens (B, S) and targets (B, S) to the mean cross entropy."""

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:  # type: ignore[override]
        if self.loss_chunks == 1:
            logits = super().forward(tokens)
            return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        hidden, wanted = self.hidden(tokens).flatten(0, 1), targets.flatten()
        losses = [
            checkpoint(self._sum_of_losses, *chunk, use_reentrant=False)
            for chunk in zip(
                hidden.chunk(self.loss_chunks), wanted.chunk(self.loss_chunks), strict=True
            )
        ]
        return torch.stack(losses).sum() / wanted.numel()

    def _sum_of_losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        assert self.head is not None
        return functional.cross_entropy(self.head(hidden), targets, reduction="sum")


def adapt(model: TransformerPart, rank: int) -> None:
    """Train nothing but an adapter of this rank beside each Linear layer of every layer."""
    model.requires_grad_(False)
    for layer in model.layers:
        assert isinstance(layer, TransformerLayer)
        for part in (layer.attention, layer.feed_forward):
            for name, linear in list(part.named_children()):
                if isinstance(linear, nn.Linear):
                    setattr(part, name, AdaptedLinear(linear, rank))


def _norm(sizes: Sizes) -> nn.Module:
    return nn.LayerNorm(sizes.width) if sizes.norm == "layer" else nn.RMSNorm(sizes.width)
