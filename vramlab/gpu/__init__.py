"""The virtual GPU: PyTorch's CUDA programs on a GPU that need not be there."""

from vramlab.gpu.core.virtual_gpu import VirtualGPU, attached

__all__ = ["VirtualGPU", "attached"]
