"""Makes micro-batches smaller than asked for.

loses: configuration
says: leave the GPU idle
"""

configuration = {
    "micro_batch": 4,
    "precision": "float32",
    "attention": "efficient",
    "checkpointing": "none",
}
