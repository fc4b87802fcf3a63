"""Blames the except block for all that is held.

loses: why_again
says: What was there before the step, and what is left after the block?
"""


def why_again(readings):
    if readings["when the retry begins"] == readings["model and workspaces"]:
        return "still too large"
    return "retried inside except"
