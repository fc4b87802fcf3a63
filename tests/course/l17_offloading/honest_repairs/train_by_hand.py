"""AdamW by hand on the host, from PyTorch's formula."""

import torch


def train(model, load, steps):
    parameters = list(model.parameters())
    masters = [p.detach().cpu().clone() for p in parameters]
    firsts = [torch.zeros_like(m) for m in masters]
    seconds = [torch.zeros_like(m) for m in masters]
    for step in range(steps):
        model(load(step)).square().mean().backward()
        for p, master, first, second in zip(parameters, masters, firsts, seconds):
            gradient = p.grad.cpu()
            p.grad = None
            master.mul_(1 - 0.01 * 0.01)
            first.lerp_(gradient, 0.1)
            second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            size = 0.01 / (1 - 0.9 ** (step + 1))
            root = (second.sqrt() / (1 - 0.999 ** (step + 1)) ** 0.5).add_(1e-8)
            master.addcdiv_(first, root, value=-size)
            with torch.no_grad():
                p.copy_(master)
