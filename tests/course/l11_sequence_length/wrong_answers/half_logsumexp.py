"""Takes the logsumexp for half precision.

loses: fused_kept_bytes
says: You gave the logsumexp two bytes.
"""


def fused_kept_bytes(kind, batch, heads, length, head_size):
    rows = length if kind == "flash" else -(-length // 32) * 32
    output = block_bytes(2 * batch * heads * length * head_size)  # noqa: F821  (another cell)
    kept = output + block_bytes(2 * batch * heads * rows)  # noqa: F821
    return kept + (1024 if kind == "flash" else 0)
