"""Gives each answer the whole prompt.

loses: shared_bytes
says: Full pages of it are there once.
"""


def shared_bytes(prompt, answers, new, page, layers, kv_heads, head_size):
    pages = answers * -(-(prompt + new) // page)
    return pages * page * 4 * layers * kv_heads * head_size
