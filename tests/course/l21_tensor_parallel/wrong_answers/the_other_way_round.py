"""Takes what is gathered for rows.

loses: which_cuts
says: You have it the other way round.
"""


def which_cuts(forward, backward):
    if len(forward) == 1:
        return "column, row"
    return ", ".join("row" if kind == "all-gather" else "column" for kind, _ in forward)
