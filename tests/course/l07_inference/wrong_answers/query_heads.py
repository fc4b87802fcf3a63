"""Counts what every query head would have.

loses: cache_bytes
says: You counted query heads.
"""


def cache_bytes(layers, heads, kv_heads, head_size, tokens, batch, beams, dtype):
    item = 4 if dtype == "float32" else 2
    return 2 * layers * block_bytes(batch * beams * heads * tokens * head_size * item)  # noqa: F821  (defined in another cell of the notebook)
