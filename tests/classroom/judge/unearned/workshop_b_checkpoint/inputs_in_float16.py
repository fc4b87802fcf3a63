"""Inputs of blocks wait in two bytes a number.

says: the gradients are wrong
"""

import torch


class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, x, _):
        ctx.function = function
        ctx.save_for_backward(x.half())
        ctx.needs = x.requires_grad
        return function(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].float().requires_grad_(ctx.needs)
        with torch.enable_grad():
            y = ctx.function(x)
        torch.autograd.backward(y, gradient)
        return None, x.grad, None


def checkpoint(function, x):
    return Checkpoint.apply(function, x, torch.empty(0, requires_grad=True))
