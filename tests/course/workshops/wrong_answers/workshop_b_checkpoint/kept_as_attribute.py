"""Keeps inputs as attributes: they stay until the graph is gone.

loses: checkpoint
says: 8 x result of addmm, [256, 64] float32
"""

import torch


class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, needed, x):
        ctx.function, ctx.x = function, x
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.x.detach()
        x.requires_grad = ctx.x.requires_grad
        with torch.enable_grad():
            ctx.function(x).backward(gradient)
        return None, None, x.grad


def checkpoint(function, x):
    needed = torch.zeros(1, device="cuda", requires_grad=True)
    return Again.apply(function, needed, x)
