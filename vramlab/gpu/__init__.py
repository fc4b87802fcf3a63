"""The virtual GPU: PyTorch's CUDA programs on a GPU that need not be there."""

from vramlab.gpu.core.virtual_gpu import VirtualGPU, attached
from vramlab.gpu.ops import (  # noqa: F401  they register handlers
    attention_values,
    copies,
    indexing,
    inplace_backward,
    known_values,
    missing_meta,
    packed_sequence,
)

__all__ = ["VirtualGPU", "attached"]
