"""Drops other numbers when the function runs again.

loses: checkpoint_with_dropout
says: It fits, but the gradients are wrong.
"""

import torch


class RandomCheckpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, _, x, scale, number):
        ctx.function, ctx.number = function, number
        ctx.save_for_backward(x, scale)
        return function(x, scale, number)

    @staticmethod
    def backward(ctx, gradient):
        x, scale = (each.detach().requires_grad_() for each in ctx.saved_tensors)
        with torch.enable_grad():
            y = ctx.function(x, scale, ctx.number)
        torch.autograd.backward(y, gradient)
        return None, None, x.grad, scale.grad, None


def checkpoint_with_dropout(function, *inputs):
    return RandomCheckpoint.apply(function, torch.empty(0, requires_grad=True), *inputs)
