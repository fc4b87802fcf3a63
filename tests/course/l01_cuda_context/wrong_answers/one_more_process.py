"""Counts the process that fails.

loses: processes_that_fit
says: You answered how many processes are started until one fails
"""


def processes_that_fit(total_bytes, context_bytes, tensor_mib):
    return total_bytes // (context_bytes + tensor_mib * 2**20) + 1
