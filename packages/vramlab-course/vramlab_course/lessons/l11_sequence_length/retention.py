"""Retention (RetNet) in its parallel, recurrent and chunkwise form.

Source: arXiv 2307.08621 §2.1, eq. 5 to 7. The three forms compute the same. Left out are the
rotation of query and key by their position (xPos) and the normalization of scores: neither changes
what is kept.

Letters of shapes: B batch, H heads, S sequence, D head size, C tokens in a chunk, W width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Form = Literal["parallel", "recurrent", "chunkwise"]


CHUNK = 128
"""Tokens of a chunk."""


def decays(heads: int, device: torch.device | str | None = None) -> Tensor:
    """Return how much of its state each head keeps for the next token: 1 - 2^-5, ..."""
    return 1 - torch.exp2(-5 - torch.arange(heads, device=device, dtype=torch.float32))


def retain_parallel(query: Tensor, key: Tensor, value: Tensor, decay: Tensor) -> Tensor:
    """Return all tokens at once: (B, H, S, D). `decay` (H,).

    The weight of token m for token n is their product, times decay^(n - m); 0 if m comes later.
    """
    weights = query @ key.transpose(-2, -1) * _decay_between(decay, query.size(-2))
    return weights @ value


def retain_recurrent(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute one token after the other: (B, H, S, D), and the state (B, H, D, D)."""
    outputs = []
    for n in range(query.size(-2)):
        token = slice(n, n + 1)
        added = key[..., token, :].transpose(-2, -1) @ value[..., token, :]
        state = state * decay[:, None, None] + added
        outputs.append(query[..., token, :] @ state)
    return torch.cat(outputs, dim=-2), state


def retain_chunkwise(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, state: Tensor, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """Retain in parallel within a chunk, and from chunk to chunk as `retain_recurrent`."""
    between = _decay_between(decay, chunk)  # (H, C, C)
    positions = torch.arange(chunk, device=decay.device)
    since_begin = (decay[:, None] ** (positions + 1))[..., None]  # (H, C, 1)
    until_end = (decay[:, None] ** (chunk - 1 - positions))[..., None]
    over_chunk = (decay**chunk)[:, None, None]
    outputs = []
    for q, k, v in zip(
        query.split(chunk, -2), key.split(chunk, -2), value.split(chunk, -2), strict=True
    ):
        within = (q @ k.transpose(-2, -1) * between) @ v
        outputs.append(within + (q * since_begin) @ state)
        state = state * over_chunk + (k * until_end).transpose(-2, -1) @ v
    return torch.cat(outputs, dim=-2), state


def _decay_between(decay: Tensor, length: int) -> Tensor:
    """decay^(n - m) for n from m on, else 0: (H, S, S)."""
    positions = torch.arange(length, device=decay.device)
    distance = (positions[:, None] - positions).clamp_(min=0)
    return (decay[:, None, None] ** distance).tril_()


class Retention(nn.Module):
    """A layer of retention, (B, S, W) to (B, S, W), instead of one of self-attention.

    Args:
        width: of the hidden states.
        heads: how many; width / heads is the head size.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 4 * width, bias=False)  # query, key, value and gate
        self.norm = nn.GroupNorm(heads, width)
        self.project = nn.Linear(width, width, bias=False)

    def forward(
        self, x: Tensor, form: Form = "parallel", state: Tensor | None = None, chunk: int = CHUNK
    ) -> tuple[Tensor, Tensor | None]:
        """Retain, normalize each head, and gate.

        Args:
            x: (B, S, W).
            form: how it is computed. The result is the same.
            state: (B, H, D, D) of the tokens before these; None at the beginning.
            chunk: tokens of a chunk, in the chunkwise form.

        Returns:
            Output (B, S, W), and the state after these tokens; None in the parallel form.

        Raises:
            ValueError: the parallel form was given a state.
        """
        query, key, value, gate = self.inputs(x).chunk(4, dim=-1)
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (query, key, value)
        )
        key = key * key.size(-1) ** -0.5
        decay = decays(self.heads, x.device)
        if form == "parallel":
            if state is not None:
                raise ValueError(
                    "the parallel form begins at the first token and has no use for a state; "
                    "take 'recurrent' or 'chunkwise' to go on from one"
                )
            retained = retain_parallel(query, key, value, decay)
        else:
            if state is None:
                batch, heads, _, head_size = query.shape
                state = query.new_zeros(batch, heads, head_size, head_size)
            if form == "recurrent":
                retained, state = retain_recurrent(query, key, value, decay, state)
            else:
                retained, state = retain_chunkwise(query, key, value, decay, state, chunk)
        rows = retained.transpose(1, 2).flatten(2)  # (B, S, W)
        normalized = self.norm(rows.flatten(0, 1)).view_as(rows)
        return self.project(functional.silu(gate) * normalized), state
