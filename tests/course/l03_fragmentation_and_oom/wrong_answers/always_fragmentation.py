"""Blames fragmentation whenever anything is cached.

loses: why_out_of_memory
says: You blame fragmentation whenever something is reserved and unallocated.
"""


def why_out_of_memory(numbers):
    if numbers["reserved_but_unallocated"] > 0:
        return "pieces"
    return "tensors"
