"""Mixture of experts: parameters, saved tensors, capacity, and the traffic of dispatch.

Sources: Switch Transformer (arXiv 2101.03961) for capacity and expert parallelism; Mixtral (arXiv
2401.04088) for two experts per token. The layer is `MoE` in `moe.py` beside this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from vramlab.cuda_rules.collectives import ring_sent_bytes
from vramlab.cuda_rules.sizes import ITEM_BYTES, block_bytes, tensor_bytes


def expert_parameters(width: int, inner: int, matrices: int = 2) -> int:
    """Return the parameters of one expert, a feed-forward layer without biases.

    Args:
        width: of the model.
        inner: of the layer in between.
        matrices: 2, or 3 with a gate (GEGLU, SwiGLU).
    """
    return matrices * width * inner


def layer_parameters(width: int, inner: int, experts: int, matrices: int = 2) -> int:
    """Return the parameters of a layer of experts and of its router."""
    return experts * (expert_parameters(width, inner, matrices) + width)


def unused_parameters(
    layers: int, width: int, inner: int, experts: int, top_k: int, matrices: int = 2
) -> int:
    """Return the parameters that a token does not use: all experts but its own."""
    return layers * (experts - top_k) * expert_parameters(width, inner, matrices)


def capacity(tokens: int, experts: int, factor: float = 1.0, top_k: int = 1) -> int:
    """Return how many tokens each expert has room for (arXiv 2101.03961, equation 3).

    Rounded up, so that a factor of 1 has room for all tokens if they are spread evenly.
    """
    return ceil(top_k * tokens * factor / experts)


def dropped(counts: Sequence[int], room: int) -> int:
    """Return the tokens that exceed the capacity of their expert.

    Args:
        counts: tokens that each expert is sent.
        room: for how many it has room.
    """
    return sum(max(0, count - room) for count in counts)


def dispatched_bytes(tokens: int, width: int, top_k: int, ranks: int, dtype: str) -> int:
    """Return what a rank sends to others when it dispatches its tokens.

    As much comes back with the results, and each of both goes the other way round in backward. The
    tokens are spread evenly: with as many for each rank, its own among them.

    Args:
        tokens: of the rank.
        width: of the model.
        top_k: experts of each token.
        ranks: that share the experts.
        dtype: of the tokens.
    """
    return ring_sent_bytes("all-to-all", tokens * top_k * width * ITEM_BYTES[dtype], ranks)


@dataclass(frozen=True)
class MoELayer:
    """Sizes of a layer of experts, and of what it is given.

    Attributes:
        tokens: batch times sequence.
        width: of the model.
        inner: of each expert.
        experts: how many there are.
        top_k: experts that each token goes to.
        counts: tokens that each expert is sent; evenly many if None.
        dtype: of parameters and activations.
    """

    tokens: int
    width: int
    inner: int
    experts: int
    top_k: int
    counts: tuple[int, ...] | None = None
    dtype: str = "float32"

    @property
    def pairs(self) -> int:
        """Return the number of pairs of a token and one of its experts."""
        return self.tokens * self.top_k

    def kept(self) -> dict[str, int]:
        """Return the bytes saved for backward, tensor by tensor, without the layer's input.

        The router's weights need the experts' outputs for their gradients. `index_add` keeps what
        it adds, for its shape alone: `expand_as(source)` in tools/autograd/derivatives.yaml,
        PyTorch 2.13.
        """
        counts = self.counts or (self.pairs // self.experts,) * self.experts
        wide = sum(self._block(count, self.inner) for count in counts)
        return {
            "router": self._block(self.tokens, self.experts) + self._indices(),
            "copies of tokens": self._block(self.pairs, self.width),
            "hidden, before the activation": wide,
            "hidden, after it": wide,
            "outputs of experts": self._block(self.pairs, self.width),
            "the same, weighted": self._block(self.pairs, self.width),
        }

    @property
    def growth_bytes(self) -> int:
        """Return what a forward pass adds: saved tensors and the output."""
        return sum(self.kept().values()) + self._block(self.tokens, self.width)

    def _indices(self) -> int:
        """Which expert, which token, which pair; and the weight of each pair."""
        whole = block_bytes(tensor_bytes((self.pairs,), "int64"))
        return 3 * whole + self._block(self.pairs)

    def _block(self, *shape: int) -> int:
        return block_bytes(tensor_bytes(shape, self.dtype))

    def rank_growth_bytes(self, received: int) -> int:
        """Return what a forward pass adds on a rank with an expert, wherever its tokens come from.

        Copies of its own tokens go when they are sent, and results when they are sent back.

        Args:
            received: tokens that its expert gets, from all ranks.
        """
        kept = self.kept()
        return (
            kept["router"]
            + self._block(received, self.width)
            + 2 * self._block(received, self.inner)
            + kept["outputs of experts"]
            + kept["the same, weighted"]
            + self._block(self.tokens, self.width)
        )
