"""Believes that matrix products always wait for arithmetic.

loses: limited_by
says: You took every product of matrices for limited by arithmetic.
"""


def limited_by(rows, inputs, outputs, dtype, peak_flops_per_s, bandwidth_bytes_per_s):
    return "compute"
