"""Takes every scale that does not cut for a right one.

loses: which_scale
leaves: 2
says: You took every scale that does not cut for a right one.
"""


def which_scale(numbers, amax, scale, zeros, at_largest):
    if scale == 1:
        return "none"
    if 448 * scale < 0.99 * amax:
        return "old"
    return "one large number" if zeros > numbers / 4 else "right"
