"""A hook for each parameter, made by a function, with a default argument."""

import torch


def stepper(parameter):
    optimizer = torch.optim.AdamW([parameter], foreach=False)

    def step(p):
        optimizer.step()
        p.grad = None

    return step


def train(model, load, steps):
    handles = [p.register_post_accumulate_grad_hook(stepper(p)) for p in model.parameters()]
    for step in range(steps):
        model(load(step)).square().mean().backward()
    for handle in handles:
        handle.remove()
