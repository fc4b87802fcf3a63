"""Never thinks of other processes.

loses: why_out_of_memory
leaves: 1.5
says: You never find others.
"""


def why_out_of_memory(numbers):
    enough = numbers["free"] + numbers["reserved_but_unallocated"] >= numbers["tried"]
    return "pieces" if enough else "tensors"
