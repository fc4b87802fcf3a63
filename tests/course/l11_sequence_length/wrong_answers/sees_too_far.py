"""Fits, and hides the future alone: one call, and the window is forgotten.

loses: attention
says: only to the window?
"""


def attention(query, key, value, window):
    return torch.nn.functional.scaled_dot_product_attention(  # noqa: F821
        query, key, value, is_causal=True
    )
