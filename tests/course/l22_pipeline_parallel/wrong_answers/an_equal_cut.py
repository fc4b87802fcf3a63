"""Gives every rank the same work, which waits least, and is too much for the first one.

loses: choice
says: With a limit of 181.00 MiB, rank 0 takes 181.25 MiB.
"""

choice = {"schedule": "1F1B", "micro_batches": 32, "layers": [8, 8, 8, 1]}
