"""Takes the paper's formula as it is: no statistics of norms.

loses: layer_bytes
says: You forgot what the norms keep besides their input
"""


def layer_bytes(
    batch: int, sequence: int, width: int, heads: int, precision: str, attention: str
) -> int:
    number = 4 if precision == "float32" else 2
    hidden = batch * sequence * width
    kept = 16 * number * hidden + 2 * hidden
    if attention == "eager":
        return kept + (2 * number + 1) * batch * heads * sequence * sequence
    return kept + 4 * batch * heads * sequence + 1024
