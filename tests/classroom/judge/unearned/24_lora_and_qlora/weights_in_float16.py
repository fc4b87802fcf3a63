"""Dequantized weights wait in two bytes a number.

says: It runs to the end, but its peak is
"""

import torch


def train(frozen, adapters, turn_back, load, steps):
    optimizer = torch.optim.AdamW([each for pair in adapters for each in pair])

    def pack(tensor):
        return tensor.half() if tensor.numel() == 512 * 512 else tensor

    for step in range(steps):
        x = load(step)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.float()):
            for (packed, scales), (down, up) in zip(frozen, adapters, strict=True):
                x = torch.tanh(x @ turn_back(packed, scales).T + (x @ down.T) @ up.T)
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
