"""The lesson's own cell: pairs of what the model is made of, its stack of layers among them.

loses: shard
says: How many layers are gathered at the same time
"""


def shard(model, fully_shard):
    for first, second in zip(model[::2], model[1::2], strict=True):
        fully_shard([first, second], reshard_after_forward=True)
    fully_shard(model)
