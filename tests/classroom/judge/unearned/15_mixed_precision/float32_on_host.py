"""Float32 as ever; what is saved waits on the host, so it fits.

says: hardly a product is in float16
"""

import torch


def train(model, load, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=2e5)
    for step in range(steps):
        inputs, targets = load(step)
        with torch.autograd.graph.save_on_cpu():
            loss = 0.001 * torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2e-6)
        optimizer.step()
        optimizer.zero_grad()
