"""Does not think of checkpoints.

loses: which_run
leaves: 2.5
says: You did not see that layers were recomputed.
"""


def which_run(parameters: int, readings: dict[str, int], shape: dict[str, int]) -> str:
    if readings["model"] < 3 * parameters:
        return "pure 16 bit"
    hidden = shape["batch"] * shape["sequence"] * shape["width"]
    return "float32" if readings["kept"] > 52 * hidden * shape["layers"] else "autocast"
