"""Takes whatever grows for a list.

loses: which_leak
leaves: 1.5
says: You do not ask whether the growth ends.
"""


def which_leak(allocated):
    after = allocated[1:]
    if any(later < earlier for earlier, later in pairwise(after)):  # noqa: F821  (imported in another cell)
        return "cycle"
    return "none" if after[0] == after[-1] else "list"
