"""Without hooks: a backward pass of its own for each layer, from its output's gradient."""

import torch


def train(model, load, steps):
    optimizers = [torch.optim.AdamW(layer.parameters(), fused=True) for layer in model]
    for step in range(steps):
        inputs = [load(step)]
        with torch.no_grad():
            for layer in model:
                inputs.append(layer(inputs[-1]))
        last = inputs.pop().requires_grad_()
        gradient = torch.autograd.grad(last.square().mean(), last)[0]
        for layer, optimizer in zip(reversed(list(model)), reversed(optimizers)):
            x = inputs.pop().detach().requires_grad_()
            layer(x).backward(gradient)
            gradient = x.grad
            optimizer.step()
            optimizer.zero_grad()
