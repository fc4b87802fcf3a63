"""Takes four bytes a number for a law.

loses: squared_token_bytes
says: You took every number for four bytes.
"""


def squared_token_bytes(layers, heads, batch, dtype, capped, masked, dropout):
    per_score = 4 + (4 if capped else 0) + (5 if dropout else 0)
    return layers * heads * batch * per_score + masked
