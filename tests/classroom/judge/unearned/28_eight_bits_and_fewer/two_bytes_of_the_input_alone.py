"""Saves one activation of two, in two bytes, and computes the other by a sigmoid.

says: reads 0% of what the step saves from tensors of 8 bits
"""

import torch
from torch.nn import functional


class GeluLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, w):
        top = h.abs().amax(1, keepdim=True)
        ctx.save_for_backward((h / top).half(), top, w)
        return functional.gelu(h) @ w.T

    @staticmethod
    def backward(ctx, g):
        half, top, w = ctx.saved_tensors
        h = half.float() * top
        s = torch.sigmoid(1.702 * h)
        return (g @ w) * (s + 1.702 * h * s * (1 - s)), g.T @ (h * s)


def train_step(model, x):
    layers = list(model)[::2]
    h = layers[0](x)
    for layer in layers[1:]:
        h = GeluLinear.apply(h, layer.weight)
    functional.normalize(functional.gelu(h), dim=1).square().square().sum().backward()
