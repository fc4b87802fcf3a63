"""Counts a multiplication with its addition as one.

loses: limited_by
says: You counted a multiplication with its addition as one.
"""


def limited_by(rows, inputs, outputs, dtype, peak_flops_per_s, bandwidth_bytes_per_s):
    numbers = rows * inputs + inputs * outputs + rows * outputs
    moved = numbers * {"float32": 4, "float16": 2}[dtype]
    waits = moved / bandwidth_bytes_per_s > rows * inputs * outputs / peak_flops_per_s
    return "memory" if waits else "compute"
