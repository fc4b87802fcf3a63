"""Counts gradients as in PyTorch 1.x, where zero_grad() kept them.

loses: peak_bytes
leaves: 2
says: You counted all gradients for a batch in one piece, too.
"""


def peak_bytes(rows, steps, width, layers):
    activation, weight = 4 * (rows // steps) * width, 4 * width * width
    return 2 * layers * weight + (layers + 3) * activation + weight + 1024
