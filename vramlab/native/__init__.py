"""The native engine: PyTorch's own CUDA build on stub libraries, without a GPU.

What CUDA memory a program takes is decided on the host, by PyTorch's code and the libraries it
calls. Here that code is PyTorch's released one; under it lie libraries that describe a GPU, hand
out addresses, and compute nothing. docs/native.md says how, and what its answers rest on.

Linux on x86-64 only. The libraries must be in place when a process starts: `vramlab native run`
starts programs, there is nothing to attach.
"""

from vramlab.native.builds import (
    Build,
    installed,
    remove,
    remove_unused_sites,
    unused_sites,
)
from vramlab.native.errors import NativeEngineError
from vramlab.native.launch import environment, run
from vramlab.native.report import Kind, SubstituteCall
from vramlab.native.setup import find, set_up

__all__ = [
    "Build",
    "Kind",
    "NativeEngineError",
    "SubstituteCall",
    "environment",
    "find",
    "installed",
    "remove",
    "remove_unused_sites",
    "run",
    "set_up",
    "unused_sites",
]
