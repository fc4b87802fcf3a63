"""Gives each head of each text a mask of its own.

loses: squared_token_bytes
leaves: 1.5
says: You counted the future for each head and text.
"""


def squared_token_bytes(layers, heads, batch, dtype, capped, masked, dropout):
    item = ITEM_BYTES[dtype]  # noqa: F821  (defined in another cell of the notebook)
    per_score = item * (1 + capped + dropout) + dropout + masked
    return layers * heads * batch * per_score
