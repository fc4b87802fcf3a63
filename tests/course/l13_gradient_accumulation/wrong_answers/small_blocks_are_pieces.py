"""Takes every step with small blocks for accumulation.

loses: how_trained
leaves: 1.5
says: Small blocks alone do not show
"""


def how_trained(trace, layers, pieces, output_bytes):
    is_whole = any(entry["size"] == output_bytes for entry in trace)
    return "whole" if is_whole else "in pieces"
