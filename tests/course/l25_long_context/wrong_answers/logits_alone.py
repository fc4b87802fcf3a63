"""Counts the logits, and not their softmax's logarithms.

loses: loss_mib
says: You counted the logits alone.
"""


def loss_mib(tokens, vocabulary, pieces):
    return 4 * -(-tokens // pieces) * vocabulary // 2**20
