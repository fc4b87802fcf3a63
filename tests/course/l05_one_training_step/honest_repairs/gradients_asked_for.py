"""torch.autograd.grad, and scores written into a tensor."""

import torch


def train(model, optimizer, load, held_out, steps):
    scores = torch.empty(steps, device="cuda")
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for step in range(steps):
        for parameter, gradient in zip(
            parameters, torch.autograd.grad(model(load(step)).mean(), parameters), strict=True
        ):
            parameter.grad = gradient
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.inference_mode():
            scores[step] = torch.linalg.vector_norm(model(held_out)) ** 2 / held_out.numel()
    return scores
