"""Thinks that the scores before the softmax are kept, too.

loses: layer_bytes
says: You kept the scores as well as the softmax.
"""


def layer_bytes(batch, length, width, heads, feed_forward):
    hidden = 4 * batch * length * width
    scores = 4 * batch * heads * length * length
    numbers = 4 * batch * length
    sizes = 8 * [hidden] + 2 * [scores] + 2 * [4 * batch * length * feed_forward] + 4 * [numbers]
    return sum(-(-size // 512) * 512 for size in sizes)
