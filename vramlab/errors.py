"""Errors that vramlab raises on purpose.

    VramlabError
    ├── UnknownGPUError            also a ValueError: no GPU of that name in the catalogue
    ├── GPUFigureError             also a ValueError: an invalid number for a GPU
    ├── UnknownTorchVersionError   also a ValueError: an invalid torch_version
    ├── AllocatorConfigError       also a ValueError: an invalid PYTORCH_CUDA_ALLOC_CONF
    ├── OutOfDeviceMemory          an allocator could not serve a request
    ├── AllocatorInvariantError    an allocator's state is inconsistent: a bug in vramlab
    ├── NoValuesError              also a RuntimeError: a read of a tensor without values
    ├── NeedsMoreGPUs              also a RuntimeError: there are too few GPUs or processes
    └── UnsupportedOnVirtualGPU    also a NotImplementedError: the virtual GPU does not model this

Programs on a virtual GPU get PyTorch's exceptions wherever a real GPU would raise them:
`OutOfDeviceMemory` reaches them as `torch.cuda.OutOfMemoryError` with PyTorch's message.
"""

from __future__ import annotations

from collections.abc import Iterable


class VramlabError(Exception):
    """Base of every error that vramlab raises on purpose."""


class UnknownGPUError(VramlabError, ValueError):
    """No GPU of that name is in the catalogue; the message names the closest ones."""


class GPUFigureError(VramlabError, ValueError):
    """A number for a GPU has an unknown name or an invalid value."""


class UnknownTorchVersionError(VramlabError, ValueError):
    """A torch_version is not a PyTorch version; the message shows the format."""


class AllocatorConfigError(VramlabError, ValueError):
    """An allocator setting is unknown or has an invalid value."""


class OutOfDeviceMemory(VramlabError):
    """An allocator could not serve a request, even after freeing its cache.

    Attributes:
        requested_bytes: Bytes the program requested.
        segment_bytes: Bytes PyTorch would have requested from the driver ("Tried to allocate").
    """

    def __init__(self, message: str, *, requested_bytes: int, segment_bytes: int) -> None:
        super().__init__(message)
        self.requested_bytes = requested_bytes
        self.segment_bytes = segment_bytes


class AllocatorInvariantError(VramlabError):
    """An allocator's state is inconsistent. The message has the numbers that disagree."""


class NoValuesError(VramlabError, RuntimeError):
    """A value was read from a tensor on a virtual GPU, which has no values."""


class NeedsMoreGPUs(VramlabError, RuntimeError):
    """A program needs more GPUs than this process has. The message says how to get them."""


class UnsupportedOnVirtualGPU(VramlabError, NotImplementedError):
    """The virtual GPU does not model this. The message says what, and what to do instead."""


def did_you_mean(word: str, known: Iterable[str], count: int = 3) -> str:
    """Return `did you mean A or B?` with the names closest to a wrong one; '' if none is close."""
    from difflib import get_close_matches  # only a mistake needs it

    near = get_close_matches(word, list(known), count)
    return f"did you mean {' or '.join(near)}?" if near else ""
