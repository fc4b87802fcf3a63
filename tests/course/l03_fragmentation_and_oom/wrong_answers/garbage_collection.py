"""Gives cached segments back early: but those that are split cannot go.

loses: settings
says: it still runs out of memory, while
"""

settings = "garbage_collection_threshold:0.8"
