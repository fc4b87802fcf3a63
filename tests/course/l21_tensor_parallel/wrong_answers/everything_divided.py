"""Divides all activations by the ranks in both ways.

loses: activation_bytes
leaves: 2
says: You cut everything in both ways.
"""


def activation_bytes(division, batch, sequence, width, heads, ranks):
    sbh, scores = batch * sequence * width, heads * batch * sequence**2
    if division == "sequence":
        return (30 * sbh + 5 * scores + 16 * batch * sequence) // ranks + 4 * sbh
    return (34 * sbh + 5 * scores) // ranks + 16 * batch * sequence
