"""Gives autograd the input alone, which may need no gradient.

loses: checkpoint
says: When does autograd call a Function's backward?
"""

import torch


class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, x):
        ctx.function = function
        ctx.save_for_backward(x)
        return function(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        x = x.detach().requires_grad_(x.requires_grad)
        with torch.enable_grad():
            y = ctx.function(x)
        torch.autograd.backward(y, gradient)
        return None, x.grad


def checkpoint(function, x):
    return Checkpoint.apply(function, x)
