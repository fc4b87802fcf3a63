"""Scales the loss, and does not clip.

says: times as far as in float32. Are gradients clipped
"""

import torch


def train(model, load, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=2e5)
    scaler = torch.amp.GradScaler("cuda")
    for step in range(steps):
        inputs, targets = load(step)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = 0.001 * torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
