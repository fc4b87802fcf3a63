"""Copies on the host, and AdamW without its weight decay.

loses: train
says: weight decay included
"""


def train(model, load, steps):
    parameters = list(model.parameters())
    on_host = [torch.nn.Parameter(p.detach().cpu()) for p in parameters]  # noqa: F821
    optimizer = torch.optim.AdamW(on_host, lr=0.01, weight_decay=0)  # noqa: F821
    for step in range(steps):
        model(load(step)).square().mean().backward()
        for parameter, copy in zip(parameters, on_host, strict=True):
            copy.grad, parameter.grad = parameter.grad.cpu(), None
        optimizer.step()
        for parameter, copy in zip(parameters, on_host, strict=True):
            parameter.data.copy_(copy.data)
