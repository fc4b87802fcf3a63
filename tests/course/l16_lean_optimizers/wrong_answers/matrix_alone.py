"""Looks at the matrix only.

loses: which_optimizer
leaves: 2.5
says: You looked at the matrix only.
"""


def which_optimizer(numbers, matrix_bytes, vector_bytes):
    matrix = matrix_bytes / numbers
    if matrix == 0:
        return "SGD"
    if matrix < 1:
        return "Adafactor"
    if matrix < 3:
        return "8-bit AdamW"
    return "SGD with momentum" if matrix < 6 else "AdamW"
