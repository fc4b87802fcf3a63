"""Takes what is fastest, and does not fit.

loses: methods
says: MiB, it takes
"""

methods = {
    "micro_batches": 1,
    "checkpointing": False,
    "autocast": True,
    "optimizer": "adamw, fused",
}
