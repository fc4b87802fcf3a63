"""Does not look at what was held before.

loses: why_again
leaves: 2.5
says: You did not look at what was there before the step.
"""


def why_again(readings):
    idle = readings["model and workspaces"]
    if readings["when the retry begins"] == idle:
        return "still too large"
    if readings["after the except block"] > idle:
        return "the error is kept"
    return "retried inside except"
