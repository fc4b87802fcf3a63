"""The lesson's layer: BERT's, which reads its own text and has GELU.

loses: layer_bytes
says: cases are wrong
"""


def layer_bytes(batch, length, width, heads, feed_forward, read_length, activation):
    hidden, scores = 4 * batch * length * width, 4 * batch * heads * length * length
    numbers = 4 * batch * length
    sizes = 8 * [hidden] + [scores] + 2 * [4 * batch * length * feed_forward] + 4 * [numbers]
    return sum(-(-size // 512) * 512 for size in sizes)
