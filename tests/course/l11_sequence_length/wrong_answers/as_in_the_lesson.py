"""The lesson's own numbers: twelve layers of twelve heads, a text, float32, dropout.

loses: squared_token_bytes
leaves: 0
says: cases are wrong
"""


def squared_token_bytes(layers, heads, batch, dtype, capped, masked, dropout):
    return 12 * 12 * (4 + 1 + 4)
