"""A hook for each layer: its inputs go to the host by themselves."""

import torch
from torch.autograd.graph import saved_tensors_hooks


def train_step(model, x):
    class Saved:
        def __init__(self, tensor):
            self.device = tensor.device
            self.numbers = tensor.to("cpu", copy=True)

        def back(self):
            return self.numbers.to(self.device)

    with saved_tensors_hooks(Saved, Saved.back):
        y = x
        for layer in model:
            y = layer(y)
        loss = torch.mean(y * y)
    loss.backward()
