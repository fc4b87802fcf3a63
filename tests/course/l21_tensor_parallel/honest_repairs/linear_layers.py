"""Weights of Linear layers, and an add of what comes back."""

import torch
from torch.nn import functional


def feed_forward(x, up, down):
    width = up.shape[1] // 2
    parts = []
    for gpu in (1, 0):
        device = torch.device("cuda", gpu)
        mine = slice(gpu * width, (gpu + 1) * width)
        first, second = up[:, mine].to(device).T, down[mine].to(device).T
        hidden = functional.gelu(functional.linear(x.to(device), first))
        parts.append((functional.linear(hidden, second), first, second))
    (other, *_), (own, *_) = parts
    return torch.add(own, other.to("cuda:0"))
