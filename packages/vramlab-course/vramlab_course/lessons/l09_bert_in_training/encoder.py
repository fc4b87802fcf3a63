"""BERT's encoder in plain PyTorch, which keeps what transformers' BERT keeps, layer by layer.

Shapes: B batch, S sequence, R the sequence that is read, W width, H heads, D head size (W / H),
F feed-forward width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

ATTENTIONS = ("eager", "sdpa")
"""Step by step, or by torch.nn.functional.scaled_dot_product_attention."""

ACTIVATIONS = ("gelu", "relu", "gated")
"""Of feed-forward; "gated" multiplies GELU's output with that of another Linear layer."""


class EncoderLayer(nn.Module):
    """One layer: (B, S, W) to (B, S, W).

    Args:
        width: W.
        heads: H; a divisor of the width.
        feed_forward: F.
        hidden_dropout: probability of the dropout before each of the two sums.
        attention_dropout: probability of the dropout on the softmax.
        attention: one of `ATTENTIONS`; can be set later.
        activation: one of `ACTIVATIONS`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        feed_forward: int,
        *,
        hidden_dropout: float = 0.1,
        attention_dropout: float = 0.1,
        attention: str = "eager",
        activation: str = "gelu",
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"no activation {activation!r}; there are: {', '.join(ACTIVATIONS)}")
        self.heads, self.attention, self.attention_dropout = heads, attention, attention_dropout
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.Linear(width, feed_forward), nn.Linear(feed_forward, width)
        self.activation = functional.relu if activation == "relu" else functional.gelu
        self.gate = nn.Linear(width, feed_forward) if activation == "gated" else None
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(hidden_dropout)

    def forward(self, x: Tensor, read: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return what the layer puts out, and its attention weights (B, H, S, R) if there are any.

        Args:
            x: (B, S, W).
            read: (B, R, W), whose keys and values are looked at; x itself if None.
        """
        context, weights = self.attend(x, x if read is None else read)
        x = self.norm(x + self.dropout(self.output(context)))
        inner = self.activation(self.first(x))
        if self.gate is not None:
            inner = inner * self.gate(x)
        return self.last_norm(x + self.dropout(self.second(inner))), weights

    def attend(self, x: Tensor, read: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the context (B, S, W), and the attention weights if the kernel gives them."""
        query, key, value = (
            linear(seen).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, S or R, D)
            for linear, seen in ((self.query, x), (self.key, read), (self.value, read))
        )
        dropped = self.attention_dropout if self.training else 0.0
        weights = None
        if self.attention == "sdpa":
            context = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropped)
        else:
            scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
            weights = functional.dropout(torch.softmax(scores, -1), dropped, self.training)
            context = weights @ value
        return context.transpose(1, 2).reshape(x.shape), weights


@dataclass
class Outputs:
    """What an `Encoder` gives."""

    last: Tensor
    """The last layer's output (B, S, W)."""
    hidden_states: list[Tensor]
    """The input and every layer's output; empty unless requested."""
    attention_weights: list[Tensor]
    """Of every layer, (B, H, S, S); empty unless requested, or with sdpa."""


class Encoder(nn.Module):
    """Run layers one after the other: (B, S, W) to (B, S, W). Other arguments: `EncoderLayer`."""

    def __init__(
        self, layers: int, width: int, heads: int, feed_forward: int, **how: float
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            EncoderLayer(width, heads, feed_forward, **how)  # type: ignore[arg-type]
            for _ in range(layers)
        )

    def use_attention(self, attention: str) -> None:
        """Let all layers attend in that way from here on; one of `ATTENTIONS`."""
        if attention not in ATTENTIONS:
            raise ValueError(f"no attention {attention!r}; there are: {', '.join(ATTENTIONS)}")
        for layer in self.layers:
            assert isinstance(layer, EncoderLayer)
            layer.attention = attention

    def forward(
        self, x: Tensor, *, hidden_states: bool = False, attention_weights: bool = False
    ) -> Outputs:
        """Run the layers, and gather what was asked for on the way."""
        outputs = Outputs(x, [x] if hidden_states else [], [])
        for layer in self.layers:
            outputs.last, weights = layer(outputs.last)
            if hidden_states:
                outputs.hidden_states.append(outputs.last)
            if attention_weights and weights is not None:
                outputs.attention_weights.append(weights)
        return outputs
