"""Counts the prompt's last page beside all its copies.

loses: shared_bytes
says: Does the last who writes on in it need a copy?
"""


def shared_bytes(prompt, answers, new, page, layers, kv_heads, head_size):
    full = prompt // page
    pages = -(-prompt // page) + answers * (-(-(prompt + new) // page) - full)
    return pages * page * 4 * layers * kv_heads * head_size
