"""Norms of all states at once, before the backward pass."""

import torch


def train(model, load, steps):
    model.use_attention("sdpa")
    parameters = list(model.parameters())
    losses, norms = [], []
    for step in range(steps):
        x, target = load(step)
        outputs = model(x, hidden_states=True)
        with torch.no_grad():
            norms.append([torch.linalg.vector_norm(each) for each in outputs.hidden_states])
        loss = torch.nn.functional.mse_loss(outputs.last, target)
        loss.backward()
        with torch.no_grad():
            for parameter in parameters:
                parameter.add_(parameter.grad, alpha=-0.1)
                parameter.grad = None
        losses.append(loss.detach())
        del outputs, loss
    return losses, norms
