"""All gradients wait for the step, in two bytes a number.

says: it runs out of memory
"""

import torch


def train(model, load, steps):
    parameters = list(model.parameters())
    optimizers = {each: torch.optim.AdamW([each], fused=True) for each in parameters}
    waiting = {}

    def keep(parameter):
        waiting[parameter] = parameter.grad.bfloat16()
        parameter.grad = None

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(keep)
    for step in range(steps):
        model(load(step)).square().mean().backward()
        for parameter in parameters:
            parameter.grad = waiting.pop(parameter).float()
            optimizers[parameter].step()
            parameter.grad = None
