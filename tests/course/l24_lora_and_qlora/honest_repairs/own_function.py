"""A Function of its own, outside of the program, that gets dequantize as an argument."""

import torch


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, packed, scales, dequantize):
        ctx.save_for_backward(packed, scales)
        ctx.dequantize = dequantize
        return x @ dequantize(packed, scales).T

    @staticmethod
    def backward(ctx, gradient):
        packed, scales = ctx.saved_tensors
        return gradient @ ctx.dequantize(packed, scales), None, None, None


def train(frozen, adapters, dequantize, load, steps):
    optimizer = torch.optim.AdamW(sum(map(list, adapters), []))
    for step in range(steps):
        x = load(step)
        for kept, (down, up) in zip(frozen, adapters):
            base = Product.apply(x, *kept, dequantize)
            x = (base + x @ down.T @ up.T).tanh()
        loss = (x**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
