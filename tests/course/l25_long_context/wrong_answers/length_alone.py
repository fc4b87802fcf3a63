"""Looks at the length alone.

loses: what_peaks
leaves: 1.5
says: You looked at the length alone.
"""


def what_peaks(readings):
    return "scores" if readings["twice the tokens"] > 2.6 * readings["peak"] else "logits"
