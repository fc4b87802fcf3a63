"""The virtual GPU: PyTorch's CUDA programs on a GPU that need not be there."""

from vramlab.virtual import transfers  # noqa: F401  registers the handlers of its ops
from vramlab.virtual.gpu import VirtualGPU, attached

__all__ = ["VirtualGPU", "attached"]
