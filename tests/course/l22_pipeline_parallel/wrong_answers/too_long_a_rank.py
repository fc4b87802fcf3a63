"""Fits, and lets everybody wait for the rank with the head.

loses: choice
says: It fits, but the bubble is
"""

choice = {"schedule": "1F1B", "micro_batches": 32, "layers": [6, 7, 9, 3]}
