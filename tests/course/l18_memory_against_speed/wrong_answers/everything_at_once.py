"""Takes every method there is.

loses: methods
says: longer than another choice that fits
"""

methods = {
    "micro_batches": 8,
    "checkpointing": True,
    "autocast": True,
    "optimizer": "adamw, fused",
}
