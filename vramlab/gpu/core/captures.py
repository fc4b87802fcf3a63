"""Which streams are captured into CUDA graphs, and what may not be done meanwhile.

A stream that waits for an event of a capture joins it. What waits for a captured stream, or for a
GPU that has one, is an error, and the capture is lost: all that follows on its streams fails until
it ends, and so does its end.

Source: CUDA C++ Programming Guide, "Creating a Graph Using Stream Capture" ("Prohibited and
Unhandled Operations", "Invalidation"); error texts are those of `cudaGetErrorString`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

_DEFAULT_STREAM = 0


def cuda_error(number: int, name: str, text: str) -> torch.AcceleratorError:
    """Make an error of CUDA's runtime, in the words in which PyTorch raises it.

    Source: `c10_cuda_check_implementation` in c10/cuda/CUDAException.cpp and
    `get_cuda_error_help` in c10/cuda/CUDAMiscFunctions.cpp, PyTorch 2.13.
    """
    error = torch.AcceleratorError(
        f"CUDA error: {text}\nSearch for `{name}' in https://docs.nvidia.com/cuda/"
        "cuda-runtime-api/group__CUDART__TYPES.html for more information.\n"
    )
    error.error_code = number  # type: ignore[attr-defined]
    return error


def invalid_argument() -> torch.AcceleratorError:
    """Make the error of a call whose arguments are wrong, or come at the wrong time."""
    return cuda_error(1, "cudaErrorInvalidValue", "invalid argument")


def not_permitted() -> torch.AcceleratorError:
    """Make the error of what waits for a stream that is captured."""
    return cuda_error(
        900,
        "cudaErrorStreamCaptureUnsupported",
        "operation not permitted when stream is capturing",
    )


def invalidated() -> torch.AcceleratorError:
    """Make the error of what follows in a capture that is lost."""
    return cuda_error(
        901,
        "cudaErrorStreamCaptureInvalidated",
        "operation failed due to a previous error during capture",
    )


class Capture:
    """The capture of one CUDA graph.

    Attributes:
        device: the GPU of the stream on which it began.
        launches: how many kernels and copies it has.
        is_valid: whether nothing has been done that a capture forbids.
        generators: the random number generators that its kernels may use, by `generator_id`.
        draw: called when a kernel uses a generator (None: the GPU's own), where a graph keeps
            states of those alone that its kernels use: since PyTorch 2.14.
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self.launches = 0
        self.is_valid = True
        self.generators: frozenset[int] = frozenset()
        self.draw: Callable[[torch.Generator | None], None] | None = None


class Captures:
    """The captures that are underway on one machine.

    Attributes:
        graph_pools: makes the numbers of private pools that graphs have of their own.
        user_pools: makes the numbers of pools that a program makes.
    """

    def __init__(self) -> None:
        self.graph_pools = itertools.count(1)
        self.user_pools = itertools.count(1)
        self._by_stream: dict[int, Capture] = {}

    def __bool__(self) -> bool:
        return bool(self._by_stream)

    def begin(self, device: int, stream: int) -> Capture:
        """Begin to capture what comes into a stream.

        Raises:
            torch.AcceleratorError: the stream is captured already.
        """
        if stream in self._by_stream:
            raise invalid_argument()
        capture = self._by_stream[stream] = Capture(device)
        return capture

    def end(self, capture: Capture) -> None:
        """Let go of the streams of a capture.

        Raises:
            torch.AcceleratorError: something was done that a capture forbids.
        """
        for stream in [key for key, each in self._by_stream.items() if each is capture]:
            del self._by_stream[stream]
        if not capture.is_valid:
            raise invalidated()

    def of(self, stream: int) -> Capture | None:
        """Find the capture of a stream."""
        return self._by_stream.get(stream)

    def join(self, stream: int, capture: Capture | None) -> None:
        """Let a stream take part in a capture, an event of which it waits for."""
        if capture in self._by_stream.values() and stream != _DEFAULT_STREAM:
            assert capture is not None
            self._by_stream.setdefault(stream, capture)

    def wait_for(self, capture: Capture | None) -> None:
        """Refuse to wait for work that is captured; None: the work is not.

        Raises:
            torch.AcceleratorError: it is. The capture is lost.
        """
        if capture is not None:
            capture.is_valid = False
            raise not_permitted()

    def wait_for_device(self, device: int) -> None:
        """Refuse to wait for a GPU of which a stream is captured.

        Raises:
            torch.AcceleratorError: one is. All captures of the GPU are lost.
        """
        captured = [each for each in self._by_stream.values() if each.device == device]
        for capture in captured:
            capture.is_valid = False
        if captured:
            raise not_permitted()
