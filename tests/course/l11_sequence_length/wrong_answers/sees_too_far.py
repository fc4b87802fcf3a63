"""Fits, and hides the future alone: one call, and the window is forgotten.

loses: attention
says: Does a token see all that came before it, or a window?
"""


def attention(query, key, value, window):
    return torch.nn.functional.scaled_dot_product_attention(  # noqa: F821
        query, key, value, is_causal=True
    )
