"""Takes document 001's nine bytes for a law.

loses: squared_token_bytes
says: You took every number for four bytes.
"""


def squared_token_bytes(layers, heads, batch, dtype, dropout):
    return layers * heads * batch * (9 if dropout else 4)
