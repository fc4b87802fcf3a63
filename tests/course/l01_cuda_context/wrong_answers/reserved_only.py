"""Forgets the context of the process.

loses: process_bytes
says: You answered what torch.cuda.memory_reserved() says.
"""


def process_bytes(context_bytes, kept_mib, freed_mib, emptied):
    return (sum(kept_mib) + (0 if emptied else sum(freed_mib))) * 2**20
