"""A decorator, and the loss as a number."""

import torch


@torch.inference_mode()
def evaluate(model, load, batches):
    model.eval()
    losses, scores = [], []
    for step in range(batches):
        inputs, targets = load(step)
        outputs = model(inputs)
        losses.append(torch.nn.functional.mse_loss(outputs, targets).item())
        scores.append(outputs.to("cpu", non_blocking=True))
    return sum(losses) / batches, torch.cat(scores)
