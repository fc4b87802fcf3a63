"""Norms hardly change: those of the first step are repeated.

says: the norms differ
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
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        norms = norms or [[state.detach().norm() for state in outputs.hidden_states]]
        del outputs, loss
    return losses, norms * steps
