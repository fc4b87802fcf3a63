"""A dict that is made of another."""

plain = dict(micro_batches=1, checkpointing=False, autocast=False, optimizer="adamw")
methods = {**plain, "micro_batches": 4, "autocast": True, "optimizer": "adamw" + ", fused"}
