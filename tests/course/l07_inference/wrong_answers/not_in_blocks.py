"""Forgets the blocks.

loses: cache_bytes
says: You forgot that blocks come in steps of 512 bytes
"""


def cache_bytes(layers, heads, kv_heads, head_size, tokens, batch, beams, dtype):
    item = 4 if dtype == "float32" else 2
    return 2 * layers * batch * beams * kv_heads * tokens * head_size * item
