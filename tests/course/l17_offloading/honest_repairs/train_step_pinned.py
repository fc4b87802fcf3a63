"""Pinned memory."""

from torch.autograd import graph


def train_step(model, x):
    with graph.save_on_cpu(pin_memory=True):
        loss = model(x).pow(2).mean()
    loss.backward()
