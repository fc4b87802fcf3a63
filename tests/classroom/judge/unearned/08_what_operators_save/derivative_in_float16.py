"""Saves the derivative in 2 bytes a number, instead of x and nothing else.

says: It fits, and the loss is the same, but the gradients are not.
"""

import torch


class QuickGELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        gate = torch.sigmoid(1.702 * x)
        ctx.save_for_backward((gate + 1.702 * x * gate * (1 - gate)).half())
        return x * gate

    @staticmethod
    def backward(ctx, gradient):
        (derivative,) = ctx.saved_tensors
        return gradient * derivative.float()


def quick_gelu(x):
    return QuickGELU.apply(x)
