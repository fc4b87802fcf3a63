"""Forgets that the input is cast.

loses: fewest_rows
says: You forgot that the input is cast, too
"""


def fewest_rows(widths):
    parameters = sum(inputs * outputs + outputs for inputs, outputs in pairwise(widths))  # noqa: F821
    return parameters // sum(widths[1:]) + 1
