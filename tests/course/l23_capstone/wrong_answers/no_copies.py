"""Leaves out the float32 copies, and keeps the states in 16 bit beside them.

loses: fewest_gpus
leaves: 1.5
says: You left out the float32 copies, or kept states in 16 bit.
"""


def fewest_gpus(layers, width, vocabulary, precision, optimizer, room_bytes):
    parameters = layers * (12 * width**2 + 2 * width) + 2 * vocabulary * width + width
    number = 4 if precision in ("float32", "autocast bfloat16") else 2
    states = number * {"sgd": 0, "sgd with momentum": 1, "adamw": 2}[optimizer]
    gpus = 1
    while parameters * (2 * number + states) > gpus * room_bytes:
        gpus *= 2
    return gpus
