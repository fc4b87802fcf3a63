"""Takes weights and gradients for 16 bit under autocast.

loses: fewest_gpus
leaves: 2
says: You took autocast's weights and gradients for 16 bit.
"""


def fewest_gpus(layers, width, vocabulary, precision, optimizer, room_bytes):
    parameters = layers * (12 * width**2 + 2 * width) + 2 * vocabulary * width + width
    number = 2 if precision == "pure bfloat16" else 4
    states = number * {"sgd": 0, "sgd with momentum": 1, "adamw": 2}[optimizer]
    weight_and_gradient = 4 if precision == "autocast bfloat16" else 2 * number
    gpus = 1
    while parameters * (weight_and_gradient + states) > gpus * room_bytes:
        gpus *= 2
    return gpus
