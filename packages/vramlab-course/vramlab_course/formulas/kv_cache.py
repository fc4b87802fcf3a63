"""The KV cache of a transformer that generates text.

Each layer keeps two tensors (sequences, key-value heads, tokens, head size): for every token seen,
one key and one value per key-value head. Queries are not kept. With grouped-query attention (arXiv
2305.13245) there are fewer key-value heads than query heads.

Source of the layout and of how it grows: `DynamicLayer` and `StaticLayer` in
transformers/cache_utils.py, transformers 5. All sizes are those of the blocks that tensors take
(multiples of 512 B), unless stated otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramlab.cuda_rules.sizes import ITEM_BYTES, block_bytes, tensor_bytes


@dataclass(frozen=True)
class KVCache:
    """Sizes of a cache.

    Attributes:
        layers: of the model, each with a key tensor and a value tensor.
        kv_heads: key-value heads of a layer; as many as query heads unless they are grouped.
        head_size: numbers in one key, or one value.
        sequences: that are generated at once: batch times beams.
        dtype: of the cache, that of the model's activations.
    """

    layers: int
    kv_heads: int
    head_size: int
    sequences: int = 1
    dtype: str = "float16"

    @property
    def token_bytes(self) -> int:
        """Return what one token of one sequence adds to the KV cache, not rounded to blocks."""
        return 2 * self.layers * self.kv_heads * self.head_size * ITEM_BYTES[self.dtype]

    def tensor_bytes(self, tokens: int) -> int:
        """Return one key or value tensor: (sequences, key-value heads, tokens, head size)."""
        shape = (self.sequences, self.kv_heads, tokens, self.head_size)
        return block_bytes(tensor_bytes(shape, self.dtype))

    def held_bytes(self, tokens: int) -> int:
        """Return the whole KV cache with this number of tokens. The last token made is not."""
        return 2 * self.layers * self.tensor_bytes(tokens)

    def append_peak_bytes(self, tokens: int, new: int = 1) -> int:
        """Return the peak of the KV cache while tokens are appended, tensor after tensor.

        `torch.cat` makes the longer tensor before the shorter one is given back. The worst moment
        is the last tensor's: all others are long already, and it is there in both lengths.

        Args:
            tokens: in the cache before.
            new: that are appended.
        """
        return self.held_bytes(tokens + new) + self.tensor_bytes(tokens)

    def reorder_peak_bytes(self, tokens: int, *, at_once: bool = False) -> int:
        """Return the peak of the KV cache while its sequences are reordered for beam search.

        Args:
            tokens: in the cache.
            at_once: whether all tensors are selected before the old ones are given back, as older
                models of transformers did; otherwise one tensor at a time (`reorder_cache`).
        """
        again_bytes = self.held_bytes(tokens) if at_once else self.tensor_bytes(tokens)
        return self.held_bytes(tokens) + again_bytes

    def longest(self, free_bytes: int) -> int:
        """Return how many tokens fit into this memory, counting only the KV cache.

        Room for one more copy of one tensor is left, for appending the last token.
        """
        shortest, too_long = 0, free_bytes // self.token_bytes + 2
        while too_long - shortest > 1:
            middle = (shortest + too_long) // 2
            if self.append_peak_bytes(middle - 1) <= free_bytes:
                shortest = middle
            else:
                too_long = middle
        return shortest
