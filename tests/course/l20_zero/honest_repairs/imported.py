"""PyTorch's own names are imported, too."""

from torch.distributed.fsdp import FSDPModule, fully_shard  # noqa: F401


def shard(model, fully_shard):
    for layer in model.layers.children():
        fully_shard(layer)
    fully_shard(model.head)
    fully_shard(model)
    assert isinstance(model, FSDPModule), type(model).__name__
