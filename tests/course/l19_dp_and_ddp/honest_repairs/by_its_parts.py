"""DataParallel by its parts: scatter, replicate, parallel_apply, gather."""

import torch
from torch.nn.parallel import gather, parallel_apply, replicate, scatter


class WithLoss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, labels):
        return torch.nn.functional.cross_entropy(self.model(x), labels).view(1)


def train_step(model, x, labels):
    devices = list(range(torch.cuda.device_count()))
    inputs = scatter((x, labels), devices)
    replicas = replicate(WithLoss(model), devices)
    losses = parallel_apply(replicas, inputs)
    gather(losses, 0).mean().backward()
