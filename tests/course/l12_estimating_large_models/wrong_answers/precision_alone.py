"""Changes the precision and the micro-batch, but keeps the scores.

loses: configuration
says: it runs out of memory
"""

configuration = {
    "micro_batch": 16,
    "precision": "autocast float16",
    "attention": "eager",
    "checkpointing": "none",
}
