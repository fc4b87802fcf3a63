"""Tells the mode from the softmax alone, so all runs with sdpa look like eval mode.

loses: which_run
leaves: 2.5
says: You did not tell the modes apart where the softmax is not kept.
"""


def which_run(sizes, kept):
    rows = sizes["batch"] * sizes["length"]
    softmax = 4 * rows * sizes["heads"] * sizes["length"]
    masks = 2 * rows * sizes["width"]
    others = 32 * rows * sizes["width"] + 8 * rows * sizes["feed_forward"] + 16 * rows
    expected = {
        "eval, eager": softmax,
        "train, eager": 9 * softmax // 4 + masks,
        "train, eager, no dropout on the softmax": softmax + masks,
        "eval, sdpa": 0,
    }
    return min(expected, key=lambda run: abs(expected[run] - (kept - others)))
