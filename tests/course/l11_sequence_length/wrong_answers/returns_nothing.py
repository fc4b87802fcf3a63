"""Computes attention, and forgets to return it.

loses: attention
says: It has to return a tensor
"""


def attention(query, key, value, window):
    torch.nn.functional.scaled_dot_product_attention(query, key, value)  # noqa: F821
