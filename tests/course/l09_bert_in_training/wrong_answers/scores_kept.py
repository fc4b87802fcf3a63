"""Thinks that the scores before the softmax are kept, too.

loses: layer_bytes
says: You kept the scores as well as the softmax.
"""


def layer_bytes(batch, length, width, heads, feed_forward, read_length, activation):
    own, read = 4 * batch * length * width, 4 * batch * read_length * width
    scores = 4 * batch * heads * length * read_length
    inner = {"relu": 1, "gelu": 2, "gated": 4}[activation] * [4 * batch * length * feed_forward]
    numbers = 4 * batch * length
    sizes = 6 * [own] + 2 * [read] + 2 * [scores] + inner + 4 * [numbers]
    return sum(-(-size // 512) * 512 for size in sizes)
