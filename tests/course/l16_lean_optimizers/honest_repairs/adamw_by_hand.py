"""AdamW's formula in a hook: decay, two moments, and their corrections."""

import collections

import torch


def train(model, load, steps):
    count = collections.Counter()
    moments = {each: (torch.zeros_like(each), torch.zeros_like(each)) for each in model.parameters()}

    @torch.no_grad()
    def update(parameter):
        count[parameter] += 1
        t, gradient = count[parameter], parameter.grad
        first, second = moments[parameter]
        parameter.mul_(1 - 1e-3 * 1e-2)
        first.lerp_(gradient, 0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        size = (second.sqrt() / (1 - 0.999**t) ** 0.5).add_(1e-8)
        parameter.addcdiv_(first, size, value=-1e-3 / (1 - 0.9**t))
        parameter.grad = None

    for parameter in moments:
        parameter.register_post_accumulate_grad_hook(update)
    for step in range(steps):
        model(load(step)).square().mean().backward()
