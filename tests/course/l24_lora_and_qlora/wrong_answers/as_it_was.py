"""The program as it was given.

loses: train
says: saves a dequantized weight
"""


def train(frozen, adapters, turn_back, load, steps):
    optimizer = torch.optim.AdamW([each for pair in adapters for each in pair])  # noqa: F821  (imported in another cell of the notebook)
    for step in range(steps):
        x = load(step)
        for (packed, scales), (down, up) in zip(frozen, adapters):  # noqa: B905
            weight = turn_back(packed, scales)
            x = torch.tanh(x @ weight.T + (x @ down.T) @ up.T)  # noqa: F821
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
