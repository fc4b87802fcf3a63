"""Hooks of one's own."""

import torch


def pack(tensor):
    return (tensor.device, tensor.to("cpu"))


def unpack(packed):
    device, tensor = packed
    return tensor.to(device)


def train_step(model, x):
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = model(x).square().mean()
    loss.backward()
    print(loss.item())
