"""Takes everything without a square for flash attention.

loses: which_attention
leaves: 2.5
says: Memory-efficient attention keeps nothing besides
"""


def which_attention(batch, heads, head_size, readings):
    (length, first), (_, second), (_, third) = readings
    per_score = (third - 2 * second + first) / (2 * length**2 * batch * heads)
    if per_score < 1:
        return "flash"
    return "step by step" if round(per_score) in (2, 5) else "math"
