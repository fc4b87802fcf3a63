"""Serving: pages of the KV cache, unused reserved memory, latents, quantized weights.

Sources: PagedAttention (arXiv 2309.06180) for pages and for what reserving wastes; multi-head
latent attention (arXiv 2405.04434 §2.1) for latents. The planner's side of it, with weights and
activations, is `vramlab.planner.serving`.
"""

from __future__ import annotations

from vramlab.cuda_rules.rounding import ceil_div
from vramlab.cuda_rules.sizes import ITEM_BYTES


def pages(tokens: int, page_tokens: int = 16) -> int:
    """Return how many pages a request of this many tokens uses."""
    return ceil_div(tokens, page_tokens)


def requests_at_once(
    pool_bytes: int, tokens: int, token_bytes: int, page_tokens: int | None = 16
) -> int:
    """Return how many requests of this many tokens fit into a KV cache.

    Args:
        pool_bytes: of the whole cache.
        tokens: of each request; those that are reserved for it, where there are no pages.
        token_bytes: keys and values of a token in all layers.
        page_tokens: of a page; None: each request is in one piece.
    """
    if page_tokens is None:
        return pool_bytes // (tokens * token_bytes)
    return pool_bytes // (page_tokens * token_bytes) // pages(tokens, page_tokens)


def reserved_bytes(
    now: int, at_end: int, longest: int, token_bytes: int, requests: int, pool_bytes: int
) -> dict[str, int]:
    """Return what a KV cache is used for if it reserves the longest text for each request.

    The parts are those of figure 2 of arXiv 2309.06180.

    Args:
        now: tokens that a request has.
        at_end: tokens that it will have.
        longest: tokens that are reserved for it.
        token_bytes: keys and values of a token in all layers.
        requests: how many there are.
        pool_bytes: of the whole cache.
    """
    each = {
        "tokens": now,
        "reserved, used later": at_end - now,
        "reserved, never used": longest - at_end,
    }
    parts = {name: requests * tokens * token_bytes for name, tokens in each.items()}
    return {**parts, "other: too small for one more": pool_bytes - sum(parts.values())}


def latent_token_bytes(
    layers: int, latent: int = 512, rotary: int = 64, dtype: str = "bfloat16"
) -> int:
    """Return what a token uses in the KV cache with multi-head latent attention.

    Each layer keeps one vector for all heads, from which their keys and values are computed, and
    one rotated key that they share (arXiv 2405.04434 §2.1).

    Args:
        layers: of the model.
        latent: numbers of the vector.
        rotary: numbers of the shared key.
        dtype: of both.
    """
    return layers * (latent + rotary) * ITEM_BYTES[dtype]


def quantized_bytes(rows: int, columns: int, bits: int = 4, group: int = 128) -> int:
    """Return the bytes of a quantized matrix, with a scale of 2 bytes per group.

    Not rounded to blocks; numbers and scales are two tensors.

    Args:
        rows, columns: of the matrix.
        bits: of a number: 4 or 8.
        group: neighbours in a row that share a scale.
    """
    return rows * columns * bits // 8 + rows * ceil_div(columns, group) * ITEM_BYTES["float16"]
