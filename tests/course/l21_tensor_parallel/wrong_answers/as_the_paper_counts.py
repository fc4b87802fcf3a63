"""Takes the paper's formulas, with the norms' statistics added.

loses: activation_bytes
leaves: 2
says: You took the paper's count of a cut sequence.
"""


def activation_bytes(division, batch, sequence, width, heads, ranks):
    sbh, scores = batch * sequence * width, heads * batch * sequence**2
    if division == "sequence":
        return (34 * sbh + 5 * scores + 16 * batch * sequence) // ranks
    return 10 * sbh + (24 * sbh + 5 * scores) // ranks + 16 * batch * sequence
