"""Dequantized weights wait on the host, which the text does not rule out."""

import torch


def train(frozen, adapters, dequantize, load, steps):
    optimizer = torch.optim.AdamW([each for pair in adapters for each in pair])
    for step in range(steps):
        x = load(step)
        with torch.autograd.graph.save_on_cpu():
            for (packed, scales), (down, up) in zip(frozen, adapters, strict=True):
                x = torch.tanh(x @ dequantize(packed, scales).T + (x @ down.T) @ up.T)
            loss = x.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
