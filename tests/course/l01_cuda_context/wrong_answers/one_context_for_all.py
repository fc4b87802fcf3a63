"""Counts one context for all processes.

loses: processes_that_fit
says: You count one context for all.
"""


def processes_that_fit(total_bytes, context_bytes, tensor_mib):
    return (total_bytes - context_bytes) // (tensor_mib * 2**20)
