"""Gives the gate a tensor, and forgets that the product is one as well.

loses: layer_bytes
leaves: 2.5
says: You gave the gate one tensor more than GELU.
"""


def layer_bytes(batch, length, width, heads, feed_forward, read_length, activation):
    own, read = 4 * batch * length * width, 4 * batch * read_length * width
    scores = 4 * batch * heads * length * read_length
    inner = {"relu": 1, "gelu": 2, "gated": 3}[activation] * [4 * batch * length * feed_forward]
    numbers = 4 * batch * length
    sizes = 6 * [own] + 2 * [read] + [scores] + inner + 4 * [numbers]
    return sum(-(-size // 512) * 512 for size in sizes)
