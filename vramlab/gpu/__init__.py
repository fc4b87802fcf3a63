"""The virtual GPU: PyTorch's CUDA programs on a GPU that need not be there."""

from vramlab.gpu.attached import attached
from vramlab.gpu.virtual_gpu import VirtualGPU

__all__ = ["VirtualGPU", "attached"]
