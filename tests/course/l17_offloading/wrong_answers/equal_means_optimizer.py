"""Does not hold the bytes against the parameters.

loses: what_is_there
leaves: 1.5
says: You took equal traffic for the optimizer's.
"""


def what_is_there(readings):
    if readings["to the host"] == 0:
        return "nothing"
    if readings["to the GPU"] == readings["to the host"]:
        return "optimizer"
    return "layers"
