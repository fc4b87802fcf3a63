"""A Function of its own, outside of the program, that gets turn_back as an argument."""

import torch


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, packed, scales, turn_back):
        ctx.save_for_backward(packed, scales)
        ctx.turn_back = turn_back
        return x @ turn_back(packed, scales).T

    @staticmethod
    def backward(ctx, gradient):
        packed, scales = ctx.saved_tensors
        return gradient @ ctx.turn_back(packed, scales), None, None, None


def train(frozen, adapters, turn_back, load, steps):
    optimizer = torch.optim.AdamW(sum(map(list, adapters), []))
    for step in range(steps):
        x = load(step)
        for kept, (down, up) in zip(frozen, adapters):
            base = Product.apply(x, *kept, turn_back)
            x = (base + x @ down.T @ up.T).tanh()
        loss = (x**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
