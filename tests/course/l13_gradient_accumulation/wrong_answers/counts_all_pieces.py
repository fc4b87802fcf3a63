"""Counts all blocks of a piece's size, whenever they were there.

loses: how_trained
says: You took steps in pieces for collected ones
"""


def how_trained(trace, layers, pieces, output_bytes):
    if any(entry["size"] == output_bytes for entry in trace):
        return "whole"
    came = [entry for entry in trace if entry["action"] == "alloc"]
    count = sum(entry["size"] == output_bytes // pieces for entry in came)
    return "collected" if count > 2 * layers else "in pieces"
