"""Layers with a backward pass of their own, which keep bytes; the first input's gradient comes too."""

import torch
from torch.nn import functional


def squeeze(t):
    scale = t.abs().amax(-1, keepdim=True).clamp_min(1e-20) / 448.0
    return t.div(scale).to(torch.float8_e4m3fn), scale


def widen(kept):
    numbers, scale = kept
    return numbers.float().mul_(scale)


class ByteLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.w, ctx.kept = w, squeeze(x)
        return x @ w.t()

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ ctx.w, gradient.t() @ widen(ctx.kept)


class ByteGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.kept = squeeze(x)
        return functional.gelu(x)

    @staticmethod
    def backward(ctx, gradient):
        x = widen(ctx.kept)
        below = torch.special.ndtr(x)
        density = x.square().mul_(-0.5).exp_().mul_((2 * torch.pi) ** -0.5)
        return gradient * (below + x * density)


def train_step(model, x):
    for layer in model:
        is_linear = isinstance(layer, torch.nn.Linear)
        x = ByteLinear.apply(x, layer.weight) if is_linear else ByteGelu.apply(x)
    functional.normalize(x, dim=1).square().square().sum().backward()
