"""Does not see that gradients leave during backward.

loses: held_bytes
leaves: 2
says: You kept the gradients in both ways.
"""


def held_bytes(way, layers, width):
    return (16 if way == "all on the GPU" else 4) * layers * width * width
