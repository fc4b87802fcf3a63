"""Counts dropout's result, and forgets its mask.

loses: squared_token_bytes
leaves: 1.5
says: You forgot dropout's mask
"""


def squared_token_bytes(layers, heads, batch, dtype, capped, masked, dropout):
    item = ITEM_BYTES[dtype]  # noqa: F821  (defined in another cell of the notebook)
    return layers * heads * batch * item * (1 + capped + dropout) + masked
