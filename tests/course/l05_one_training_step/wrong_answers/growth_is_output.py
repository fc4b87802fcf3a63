"""Takes all that the forward pass adds for outputs.

loses: applications
leaves: 2
says: You took all of the forward pass's growth for outputs.
"""


def applications(allocated):
    output = allocated["inputs"] - allocated["model"]
    return (allocated["forward"] - allocated["inputs"]) // output
