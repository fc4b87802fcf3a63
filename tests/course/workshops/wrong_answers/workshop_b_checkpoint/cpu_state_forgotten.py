"""Restores the GPU's generator, and forgets the CPU's.

loses: checkpoint_with_dropout
says: Are the random numbers the same when the function runs again, on both devices?
"""

import torch


class RandomCheckpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, _, x, scale, number):
        ctx.function, ctx.number = function, number
        ctx.state = torch.cuda.get_rng_state()
        ctx.save_for_backward(x, scale)
        return function(x, scale, number)

    @staticmethod
    def backward(ctx, gradient):
        x, scale = (each.detach().requires_grad_() for each in ctx.saved_tensors)
        now = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(ctx.state)
        with torch.enable_grad():
            y = ctx.function(x, scale, ctx.number)
        torch.cuda.set_rng_state(now)
        torch.autograd.backward(y, gradient)
        return None, None, x.grad, scale.grad, None


def checkpoint_with_dropout(function, *inputs):
    return RandomCheckpoint.apply(function, torch.empty(0, requires_grad=True), *inputs)
