"""Sends every byte twice, which is only the limit for many ranks.

loses: sent_bytes
says: You sent everything twice.
"""


def sent_bytes(ranks, layers, width, dtype, frozen):
    item = {"float32": 4, "bfloat16": 2}[dtype]
    return 2 * item * (layers - frozen) * width * width
