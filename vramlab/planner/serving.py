"""What a model takes when it is served: weights, and a cache of keys and values in pages.

A server such as vLLM takes a share of the GPU's memory. Of that, the weights, what a forward pass
needs, and the CUDA context are subtracted; the rest is cut into pages of a few tokens, through all
layers. A request holds whole pages, so that a part of its last one is unused.

Sources: PagedAttention (arXiv 2309.06180) for pages; GQA (arXiv 2305.13245); MLA, which keeps one
compressed vector per token for all heads (arXiv 2405.04434 §2.1). vLLM 0.18 for the rest:
`SlidingWindowSpec` in vllm/v1/kv_cache_interface.py, `gpu_memory_utilization` and `block_size` in
vllm/config/cache.py. tests/vramlab/planner/test_serving.py compares sums with what vLLM printed.

Knows nothing of torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vramlab.catalogue import GPUModel
from vramlab.cuda_rules.rounding import ceil_div
from vramlab.errors import VramlabError

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8": 1}
"""Bytes of a number, by the names of dtypes that weights and caches have."""


class UnusableServing(VramlabError, ValueError):
    """What was asked for cannot be served so; the message says why."""


@dataclass(frozen=True)
class LayerCache:
    """What one layer keeps of each token."""

    kv_heads: int
    """Heads of keys and values; 1 with MLA."""
    width: int
    """Numbers per head and token, keys and values together."""
    window: int | None = None
    """How many tokens back it looks; None: all."""
    is_shared: bool = False
    """Whether every tensor-parallel rank keeps all of it, as MLA's compressed vector."""

    def token_bytes(self, item_bytes: int, tensor: int) -> int:
        """Size one token on one of `tensor` ranks; heads that are too few are repeated."""
        heads = self.kv_heads if self.is_shared else ceil_div(self.kv_heads, tensor)
        return heads * self.width * item_bytes

    def pages(self, tokens: int, page: int) -> int:
        """Count the pages that a request of so many tokens holds, while it is written further."""
        pages = ceil_div(tokens, page)
        if self.window is None:
            return pages
        # The window may begin in the middle of a page.
        return min(pages, ceil_div(self.window - 1, page) + 1)


@dataclass(frozen=True)
class ServedModel:
    """A model, as far as serving it takes memory."""

    name: str
    """For reports."""
    parameters: int
    """How many numbers its weights have that ranks divide: matrices."""
    repeated: int
    """How many that every rank has: norms, biases."""
    rotary_width: int
    """Numbers per position in a table of cosines and sines; 0: there is none."""
    positions: int
    """The most tokens of a request."""
    token_width: int
    """Numbers that a forward pass holds at most for each token, in the middle of a layer, that
    ranks divide."""
    residual_width: int
    """Those that every rank has."""
    caches: tuple[LayerCache, ...]
    """One for each layer with a cache."""


@dataclass(frozen=True)
class RequestSize:
    """Requests of one length."""

    tokens: int
    """Of each, prompt and answer together."""
    pages: int
    """Of all layers, one after the other."""
    cache_bytes: int
    """What a request holds on each GPU."""
    unused_bytes: int
    """Of that, in pages that are not full, or not needed any more."""
    count: int
    """How many such requests fit at a time."""


@dataclass(frozen=True)
class Serving:
    """A model that is served on GPUs.

    Raises:
        UnusableServing: sizes that cannot be.
    """

    model: ServedModel
    """Which."""
    gpu: GPUModel
    """On which GPU, each."""
    tensor: int = 1
    """Ranks that share the model."""
    weights: str = "bfloat16"
    """Dtype of the weights, and of what is computed."""
    cache: str = "bfloat16"
    """Dtype of keys and values."""
    page: int = 16
    """Tokens of a page."""
    utilization: float = 0.9
    """Share of the GPU's memory that the server takes."""
    batched_tokens: int = 2048
    """Tokens of a forward pass, at most."""

    def __post_init__(self) -> None:
        for name in ("tensor", "page", "batched_tokens"):
            if getattr(self, name) < 1:
                raise UnusableServing(f"invalid {name} {getattr(self, name)}: use at least 1")
        if not 0 < self.utilization <= 1:
            raise UnusableServing(
                f"invalid utilization {self.utilization}: use a fraction above 0 and at most 1"
            )
        for dtype in (self.weights, self.cache):
            if dtype not in ITEM_BYTES:
                known = ", ".join(ITEM_BYTES)
                raise UnusableServing(f"unsupported dtype {dtype!r} for serving: use {known}")

    @property
    def budget_bytes(self) -> int:
        """What the server may take of each GPU."""
        return int(self.gpu.total_bytes * self.utilization)

    @property
    def weights_bytes(self) -> int:
        """Weights on each GPU, and the table of rotary positions."""
        model = self.model
        own = ceil_div(model.parameters, self.tensor) + model.repeated
        table = model.positions * model.rotary_width
        return own * ITEM_BYTES[self.weights] + table * self._computing_bytes

    @property
    def activations_bytes(self) -> int:
        """What a forward pass takes for a while; about."""
        width = ceil_div(self.model.token_width, self.tensor) + self.model.residual_width
        return self.batched_tokens * width * self._computing_bytes

    @property
    def cache_bytes(self) -> int:
        """What is left for the cache on each GPU; below 0: the rest is too much already."""
        taken = self.gpu.context_bytes + self.weights_bytes + self.activations_bytes
        return self.budget_bytes - taken

    @property
    def token_bytes(self) -> int:
        """Cache of one token on each GPU, in all layers."""
        item = ITEM_BYTES[self.cache]
        return sum(layer.token_bytes(item, self.tensor) for layer in self.model.caches)

    @property
    def tokens(self) -> int:
        """How many tokens the cache holds, if no layer has a window."""
        return max(0, self.cache_bytes) // (self.page * self.token_bytes) * self.page

    def request(self, tokens: int) -> RequestSize:
        """Return what requests of a length take, and how many fit.

        Args:
            tokens: prompt and answer together.
        """
        item = ITEM_BYTES[self.cache]
        held = used = pages = 0
        for layer in self.model.caches:
            token_bytes = layer.token_bytes(item, self.tensor)
            layer_pages = layer.pages(tokens, self.page)
            pages += layer_pages
            held += layer_pages * self.page * token_bytes
            used += min(tokens, layer.window or tokens) * token_bytes
        return RequestSize(tokens, pages, held, held - used, max(0, self.cache_bytes) // held)

    def lengths(self) -> Sequence[int]:
        """Return the request lengths to report: powers of two from 512 on, and the longest."""
        longest = self.model.positions
        first = min(9, max(0, math.ceil(math.log2(longest)) - 1))
        powers = [2**n for n in range(first, longest.bit_length())]
        return sorted({*(length for length in powers if length < longest), longest})

    @property
    def _computing_bytes(self) -> int:
        """Bytes of a number that is computed: weights of 8 bits are multiplied in 16."""
        return max(2, ITEM_BYTES[self.weights])
