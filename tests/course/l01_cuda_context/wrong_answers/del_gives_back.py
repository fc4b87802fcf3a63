"""Believes that del gives memory back to the driver.

loses: process_bytes
leaves: 1
says: You take a tensor off as soon as it is deleted.
"""


def process_bytes(context_bytes, kept_mib, freed_mib, emptied):
    return context_bytes + sum(kept_mib) * 2**20
