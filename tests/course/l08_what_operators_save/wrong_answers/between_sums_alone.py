"""Does not tell inputs from outputs.

loses: which_function
leaves: 2.5
says: You told it from the reading between sums alone.
"""


def which_function(readings):
    sums = readings["between sums"] / readings["activation"]
    return {1: "2 * x", 1.25: "dropout", 2: "gelu", 3: "x * sigmoid(x)"}[sums]
