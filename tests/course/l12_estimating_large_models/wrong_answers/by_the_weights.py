"""Tells the precision from the weights alone.

loses: which_run
says: You told it from the weights alone.
"""


def which_run(parameters: int, readings: dict[str, int], shape: dict[str, int]) -> str:
    return "pure 16 bit" if readings["model"] < 3 * parameters else "float32"
