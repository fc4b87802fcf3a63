"""Takes off the workspace of a T4 on every GPU.

loses: applications
says: You always took 8.125 MiB for cuBLAS's workspace.
"""


def applications(allocated):
    output = allocated["inputs"] - allocated["model"]
    return (allocated["forward"] - allocated["inputs"] - 8_519_680) // output
