"""The virtual GPU: PyTorch's CUDA programs on a GPU that need not be there."""

from vramlab.virtual import indexing, sequences, transfers  # noqa: F401  they register handlers of ops
from vramlab.virtual.gpu import VirtualGPU, attached

__all__ = ["VirtualGPU", "attached"]
