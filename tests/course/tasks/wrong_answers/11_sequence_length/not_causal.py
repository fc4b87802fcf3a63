"""Fits, and looks into the future.

loses: attention
says: A token must not see later tokens
"""


def attention(query, key, value):
    return torch.nn.functional.scaled_dot_product_attention(query, key, value)  # noqa: F821
