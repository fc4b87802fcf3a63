"""Saved tensors wait on the host in two bytes a number.

says: the gradients are wrong
"""

import torch


def train_step(model, x):
    def pack(tensor):
        return tensor.half().cpu() if tensor.shape[0] == x.shape[0] else tensor

    def unpack(saved):
        return saved.to("cuda").float()

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = model(x).square().mean()
    loss.backward()
