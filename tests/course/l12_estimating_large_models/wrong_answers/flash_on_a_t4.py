"""Asks a T4 for flash attention.

loses: configuration
says: has no kernel of flash attention
"""

configuration = {
    "micro_batch": 16,
    "precision": "autocast float16",
    "attention": "flash",
    "checkpointing": "none",
}
