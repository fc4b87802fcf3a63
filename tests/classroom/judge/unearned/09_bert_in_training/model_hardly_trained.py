"""Losses and norms, and the optimizer's step in the first step alone.

says: the losses differ
"""

import torch


def train(model, load, steps):
    model.use_attention("sdpa")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, norms = [], []
    for step in range(steps):
        x, target = load(step)
        outputs = model(x, hidden_states=True)
        loss = (outputs.last - target).square().mean()
        loss.backward()
        if step == 0:
            optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        norms.append([state.detach().norm() for state in outputs.hidden_states])
        del outputs, loss
    return losses, norms
