"""Trains nine layers of ten.

says: the trained weights differ
"""

import torch


def train(model, load, steps):
    parameters = list(model.parameters())
    optimizers = {each: torch.optim.AdamW([each], fused=True) for each in parameters}

    def update(parameter):
        if parameter is not parameters[0]:
            optimizers[parameter].step()
        parameter.grad = None

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(update)
    for step in range(steps):
        model(load(step)).square().mean().backward()
