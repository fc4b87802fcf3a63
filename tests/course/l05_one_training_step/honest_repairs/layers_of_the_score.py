"""The held-out data go through the layers in pieces."""

import torch


@torch.no_grad()
def score(model, held_out):
    pieces = held_out.chunk(4)
    return sum(model(piece).square().sum() for piece in pieces) / held_out.numel()


def train(model, optimizer, load, held_out, steps):
    scores = []
    for step in range(steps):
        torch.mean(model(load(step))).backward()
        optimizer.step()
        optimizer.zero_grad()
        scores += [score(model, held_out)]
    return torch.tensor(scores, device="cuda")
