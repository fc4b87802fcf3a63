"""Takes every difference between the GPUs for gathered outputs.

loses: which_way
leaves: 1.5
says: You took every DataParallel for the plain one.
"""


def which_way(readings):
    model = readings["parameters"]
    if readings["peak"][0] > readings["peak"][1]:
        return "DataParallel"
    return "DDP" if readings["after backward"][1] >= 3 * model else "DDP with views"
