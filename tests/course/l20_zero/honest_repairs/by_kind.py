"""By the kind of module."""

import torch


def shard(model, fully_shard):
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            print(f"{name}: {module.weight.numel():,}")
            fully_shard(module, reshard_after_forward=True)
    return fully_shard(model)
