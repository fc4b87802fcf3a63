"""Takes the frozen product out of autograd: gradients no longer pass through it.

loses: train
says: What is left out?
"""


def train(frozen, adapters, dequantize, load, steps):
    optimizer = torch.optim.AdamW([each for pair in adapters for each in pair])  # noqa: F821  (imported in another cell of the notebook)
    for step in range(steps):
        x = load(step)
        for (packed, scales), (down, up) in zip(frozen, adapters):  # noqa: B905
            with torch.no_grad():  # noqa: F821
                base = x @ dequantize(packed, scales).T
            x = torch.tanh(base + (x @ down.T) @ up.T)  # noqa: F821
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
