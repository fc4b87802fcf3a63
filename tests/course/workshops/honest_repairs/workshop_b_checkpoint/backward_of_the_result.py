"""Backward of the result itself."""

import torch


class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, needed, x):
        ctx.function = function
        ctx.save_for_backward(x)
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx, gradient):
        saved = ctx.saved_tensors[0]
        x = saved.detach()
        x.requires_grad = saved.requires_grad
        with torch.enable_grad():
            ctx.function(x).backward(gradient)
        return None, None, x.grad


def checkpoint(function, x):
    needed = torch.zeros(1, device="cuda", requires_grad=True)
    return Again.apply(function, needed, x)
