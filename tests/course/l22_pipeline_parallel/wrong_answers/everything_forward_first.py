"""Chooses GPipe, which keeps all micro-batches.

loses: choice
says: MiB, rank 2 takes
"""

choice = {"schedule": "GPipe", "micro_batches": 32, "layers": [7, 8, 9, 1]}
