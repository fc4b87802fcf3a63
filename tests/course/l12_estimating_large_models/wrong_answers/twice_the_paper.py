"""Doubles the paper's formula for float32, masks of dropout included.

loses: layer_bytes
leaves: 2.5
says: You took float32 for twice 16 bit.
"""


def layer_bytes(
    batch: int, sequence: int, width: int, heads: int, precision: str, attention: str
) -> int:
    kept = 34 * batch * sequence * width
    if attention == "eager":
        kept += 5 * batch * heads * sequence * sequence
    else:
        kept += 4 * batch * heads * sequence + 1024
    return kept * (2 if precision == "float32" else 1) + 16 * batch * sequence
