"""Counts the input of the first layer, which was there before.

loses: peak_bytes
leaves: 2
says: You counted the input of the first layer.
"""


def peak_bytes(rows, widths, in_place):
    made = [4 * rows * widths[0]]
    for width in widths[1:]:
        made += [4 * rows * width] if in_place else 2 * [4 * rows * width]
    if not in_place:
        made.pop()
    return max(before + after for before, after in zip(made, made[1:]))  # noqa: B905, RUF007
