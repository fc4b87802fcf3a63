"""Timelines from PyTorch's memory history: recording it, and rebuilding it from snapshots."""
