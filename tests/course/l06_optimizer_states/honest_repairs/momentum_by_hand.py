"""SGD with momentum by its formula; AdamW for each parameter alone."""

import torch


def train(model, load, steps):
    parameters = tuple(model.parameters())
    momenta = [torch.zeros_like(each) for each in parameters]
    for step in range(steps):
        with torch.no_grad():
            for parameter, momentum, gradient in zip(
                parameters, momenta, _gradients(model, load(step)), strict=True
            ):
                momentum.mul_(0.9).add_(gradient)
                parameter.sub_(momentum, alpha=0.1)
    del momenta, parameter, momentum, gradient
    optimizers = [torch.optim.AdamW([each], foreach=False) for each in parameters]
    for step in range(steps, 2 * steps):
        model(load(step)).pow(2).mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def _gradients(model, batch):
    with torch.enable_grad():
        return torch.autograd.grad(model(batch).pow(2).mean(), tuple(model.parameters()))
