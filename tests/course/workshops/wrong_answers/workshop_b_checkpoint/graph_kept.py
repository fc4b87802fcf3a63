"""Builds the graph in forward, and keeps it.

loses: checkpoint
says: x result of gelu, [256, 256] float32
"""

import torch


class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, x, _):
        ctx.x = x.detach().requires_grad_()
        with torch.enable_grad():
            ctx.y = function(ctx.x)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, gradient):
        torch.autograd.backward(ctx.y, gradient)
        return None, ctx.x.grad, None


def checkpoint(function, x):
    return Checkpoint.apply(function, x, torch.empty(0, requires_grad=True))
