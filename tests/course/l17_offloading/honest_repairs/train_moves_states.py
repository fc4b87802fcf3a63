"""One parameter at a time on the host, with an optimizer of its own and data exchanged."""

import torch


def train(model, load, steps):
    pairs = [(p, torch.nn.Parameter(p.detach().to("cpu"))) for p in model.parameters()]
    optimizers = {host: torch.optim.AdamW([host], lr=0.01, foreach=False) for _, host in pairs}
    for step in range(steps):
        loss = model(load(step)).square().mean()
        loss.backward()
        for parameter, host in pairs:
            host.grad = parameter.grad.to("cpu")
            parameter.grad = None
            optimizers[host].step()
            parameter.data.copy_(host.data)
        print(f"{step}: {loss.item():.4f}, {torch.cuda.memory_reserved() >> 20} MiB")
