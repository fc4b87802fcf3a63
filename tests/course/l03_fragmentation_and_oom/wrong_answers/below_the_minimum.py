"""A limit for splits that PyTorch does not take.

loses: settings
says: PyTorch would not take this: max_split_size_mb cannot be '8'
"""

settings = "max_split_size_mb:8"
