"""Gradients are on for the training's forward pass alone."""

import torch


def train(model, load, batches):
    largest, checks = [], torch.zeros((), device="cuda")
    handle = model[0].register_forward_hook(
        lambda _, __, output: largest.append(torch.amax(output.detach(), dim=(0, 1)).clone())
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.set_grad_enabled(False)
    for index in range(batches):
        inputs, targets = load(index)
        with torch.enable_grad():
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        checks += torch.nn.functional.mse_loss(model(inputs), targets) / batches
    torch.set_grad_enabled(True)
    handle.remove()
    return checks, largest
