"""Whole numbers of 8 bits, and a function for each layer's rows."""

import torch


def pack(tensor):
    if tensor.dim() != 2 or tensor.size(0) != 2048:
        return tensor
    scale = tensor.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
    return torch.round(tensor / scale).to(torch.int8), scale


def unpack(packed):
    return packed if isinstance(packed, torch.Tensor) else packed[0] * packed[1]


def train_step(model, x):
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = model(x)
        loss = torch.nn.functional.normalize(y, dim=1).pow(4).sum()
    loss.backward()
    print(loss.item())
