"""Looks at the vector only.

loses: which_optimizer
says: You looked at the vector only.
"""


def which_optimizer(numbers, matrix_bytes, vector_bytes):
    vector = vector_bytes / numbers
    if vector < 1:
        return "SGD"
    if vector < 3:
        return "8-bit AdamW"
    return "SGD with momentum" if vector < 6 else "AdamW"
