"""Float32 as ever; checkpoints make it fit.

says: hardly a product is in float16
"""

import torch
from torch.utils.checkpoint import checkpoint_sequential


def train(model, load, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=2e5)
    for step in range(steps):
        inputs, targets = load(step)
        loss = 0.001 * torch.nn.functional.mse_loss(
            checkpoint_sequential(model, 6, inputs, use_reentrant=False), targets
        )
        del inputs, targets
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2e-6)
        optimizer.step()
        optimizer.zero_grad()
