"""Makes micro-batches smaller than asked for.

loses: configuration
says: Micro-batches of 4 leave the GPU idle
"""

configuration = {
    "micro_batch": 4,
    "precision": "float32",
    "attention": "efficient",
    "checkpointing": "none",
}
