"""A parameter's states come to the GPU for its step, and go again."""

import torch


def train(model, load, steps):
    parameters = list(model.parameters())
    optimizers = [torch.optim.AdamW([each], lr=0.01) for each in parameters]

    def move(optimizer, device):
        for state in optimizer.state.values():
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = state[name].to(device)

    for step in range(steps):
        model(load(step)).square().mean().backward()
        for optimizer in optimizers:
            move(optimizer, "cuda")
            optimizer.step()
            optimizer.zero_grad()
            move(optimizer, "cpu")
