"""Every error that vramlab raises on purpose.

    VramlabError
    ├── UnknownGPUError            also a ValueError: no GPU of that name in the catalogue
    ├── GPUFigureError             also a ValueError: a figure for a GPU that cannot be
    ├── UnknownTorchVersionError   also a ValueError: a torch_version that is none
    ├── AllocatorConfigError       also a ValueError: PYTORCH_CUDA_ALLOC_CONF cannot be understood
    ├── OutOfDeviceMemory          an allocator could not serve a request
    ├── AllocatorInvariantError    an allocator's books do not balance: a fault of vramlab's own
    ├── NoValuesError              also a RuntimeError: a value was asked of a tensor that has none
    ├── NeedsMoreGPUs              also a RuntimeError: there are too few GPUs, or too few processes
    └── UnsupportedOnVirtualGPU    also a NotImplementedError: the virtual GPU does not model this

A program that runs on a virtual GPU meets torch's own exceptions wherever a real GPU would raise
them: `OutOfDeviceMemory` reaches it as `torch.cuda.OutOfMemoryError`, with torch's words.
"""

from __future__ import annotations


class VramlabError(Exception):
    """Base of every error that vramlab raises on purpose."""


class UnknownGPUError(VramlabError, ValueError):
    """No GPU of that name is in the catalogue; the message names the closest ones."""


class GPUFigureError(VramlabError, ValueError):
    """A figure that a caller gives for a GPU is unknown, or cannot have that value."""


class UnknownTorchVersionError(VramlabError, ValueError):
    """A torch_version is no version of PyTorch; the message says how one is written."""


class AllocatorConfigError(VramlabError, ValueError):
    """An allocator setting is unknown or has a value that it cannot take."""


class OutOfDeviceMemory(VramlabError):
    """An allocator could not serve a request, even after giving back its cache.

    Attributes:
        requested_bytes: what the program asked for.
        segment_bytes: what would have been asked of the driver (PyTorch's "Tried to allocate").
    """

    def __init__(self, message: str, *, requested_bytes: int, segment_bytes: int) -> None:
        super().__init__(message)
        self.requested_bytes = requested_bytes
        self.segment_bytes = segment_bytes


class AllocatorInvariantError(VramlabError):
    """An allocator's books do not balance. The message holds the numbers that disagree."""


class NoValuesError(VramlabError, RuntimeError):
    """A value was asked of a tensor that has a size and a place, but no values."""


class NeedsMoreGPUs(VramlabError, RuntimeError):
    """A program is for more GPUs than this process has. The message says how to get them."""


class UnsupportedOnVirtualGPU(VramlabError, NotImplementedError):
    """The virtual GPU does not model this. The message says what, and what to do instead."""
