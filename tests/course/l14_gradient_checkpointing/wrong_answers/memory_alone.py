"""Never looks at the FLOPs.

loses: which_strategy
says: You told it from the memory alone.
"""


def which_strategy(readings):
    each = readings["kept"] / readings["steps"] / readings["state"]
    if each > 8:
        return "nothing"
    return "each step" if each < 2 else "products kept"
