"""Looks at the zeros before it looks at the scale.

loses: which_scale
leaves: 2
says: You told it from the zeros alone.
"""


def which_scale(numbers, amax, scale, zeros, at_largest):
    if zeros > numbers / 4:
        return "one large number"
    if scale == 1:
        return "none"
    return "right" if 0.99 * amax <= 448 * scale <= 1.01 * amax else "old"
