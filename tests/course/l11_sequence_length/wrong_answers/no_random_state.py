"""Forgets seed and offset.

loses: fused_kept_bytes
leaves: 2
says: You forgot flash attention's random state
"""


def fused_kept_bytes(kind, batch, heads, length, head_size):
    rows = length if kind == "flash" else -(-length // 32) * 32
    output = block_bytes(2 * batch * heads * length * head_size)  # noqa: F821  (another cell)
    return output + block_bytes(4 * batch * heads * rows)  # noqa: F821
