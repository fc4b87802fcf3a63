"""The model as it was given: all parameters are one group.

loses: shard
says: How many layers are gathered at the same time
"""


def shard(model, fully_shard):
    fully_shard(model)
