"""Takes autocast for what always adds less.

loses: which_recipe
leaves: 2
says: You took autocast for what always adds less.
"""


def which_recipe(rows, width, layers, readings):
    parameters = layers * (width * width + width)
    if readings["step"] == 6 * parameters:
        return "16 bit"
    if readings["step"] == 14 * parameters:
        return "16 bit, float32 copies"
    added = readings["forward"] - readings["before"]
    return "autocast" if added < 4 * layers * rows * width else "float32"
