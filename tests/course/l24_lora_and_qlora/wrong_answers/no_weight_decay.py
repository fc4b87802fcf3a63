"""Layers in checkpoints, and AdamW without its weight decay.

loses: train
says: weight decay included
"""

from torch.utils.checkpoint import checkpoint


def train(frozen, adapters, dequantize, load, steps):
    def layer(x, packed, scales, down, up):
        return torch.tanh(x @ dequantize(packed, scales).T + (x @ down.T) @ up.T)  # noqa: F821

    optimizer = torch.optim.AdamW([p for pair in adapters for p in pair], weight_decay=0)  # noqa: F821
    for step in range(steps):
        x = load(step)
        for (packed, scales), (down, up) in zip(frozen, adapters, strict=True):
            x = checkpoint(layer, x, packed, scales, down, up, use_reentrant=False)
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
