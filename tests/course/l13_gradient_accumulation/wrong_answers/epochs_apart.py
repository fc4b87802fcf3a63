"""Takes epochs for independent of each other.

loses: first_step_percent
says: You forgot what the first epoch left behind.
"""


def first_step_percent(loop, steps, batches):
    if loop == "graphs retained":
        return 50 * (steps + 1)
    return 100 * {"divided": 1, "not divided": steps, "added to itself": steps + 1}[loop]
