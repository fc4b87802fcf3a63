"""vramlab: where GPU memory goes when PyTorch trains a model, on a GPU that need not be there."""
