"""The virtual GPU: PyTorch's CUDA programs on a GPU that need not be there."""

from vramlab.virtual import (  # noqa: F401  they register handlers of ops
    attention_values,
    backward_in_place,
    indexing,
    sequences,
    transfers,
    uniform,
    without_meta,
)
from vramlab.virtual.gpu import VirtualGPU, attached

__all__ = ["VirtualGPU", "attached"]
