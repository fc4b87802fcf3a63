"""A mask of floats, which the kernel adds to the scores."""

import torch
from torch.nn import functional


def attention(query, key, value, window):
    length = query.size(-2)
    place = torch.arange(length, device=query.device)
    distance = place.unsqueeze(1) - place.unsqueeze(0)
    bias = torch.zeros(length, length, device=query.device)
    bias = bias.masked_fill((distance < 0) | (distance >= window), float("-inf"))
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
