"""Does not think of dropout.

loses: which_attention
leaves: 2.5
says: You forgot that there may be dropout
"""


def which_attention(batch, heads, head_size, readings):
    (length, first), (_, second), (_, third) = readings
    per_score = (third - 2 * second + first) / (2 * length**2 * batch * heads)
    if per_score > 1:
        return "math" if per_score >= 4 else "step by step"
    rows = batch * heads * length
    return "memory-efficient" if first == rows * (2 * head_size + 4) else "flash"
