"""Forgets that values are kept as well.

loses: cache_bytes
says: You counted keys or values.
"""


def cache_bytes(layers, heads, kv_heads, head_size, tokens, batch, beams, dtype):
    item = 4 if dtype == "float32" else 2
    return layers * block_bytes(batch * beams * kv_heads * tokens * head_size * item)  # noqa: F821  (defined in another cell of the notebook)
