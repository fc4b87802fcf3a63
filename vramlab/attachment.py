"""`vramlab.attach()`: the GPU of this machine if it has one, else a virtual one.

Whatever is attached, PyTorch's own interface works on it; the object returned here only says what
it is. Lessons begin with it, and run unchanged with and without a GPU.
"""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass
from typing import Literal

import torch

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.gpu import VirtualGPU
from vramlab.gpu import attached as attached_virtual
from vramlab.gpu.attached_gpus import ATTACHED
from vramlab.units import GIB

ENVIRONMENT = "VRAMLAB_GPU"
"""Environment variable that decides instead of the program: `T4`, `A100-40GB:4` (four of them), or
`real`."""

DEFAULT = "A100-40GB"


@dataclass(frozen=True)
class RealGPU:
    """The GPUs that are really there.

    Attributes:
        name: what CUDA calls the first of them.
        count: how many there are.
        virtual: False.
    """

    name: str
    count: int
    virtual: Literal[False] = False


AttachedGPU = VirtualGPU | RealGPU


def attach(
    name: str | None = None,
    count: int | None = None,
    *,
    virtual: bool | None = None,
    values: bool = False,
    quiet: bool = False,
) -> AttachedGPU:
    """Attach a GPU for the rest of the program, and print which.

    A fresh one: what an earlier `attach()` left allocated does not count. On a real GPU the cache
    is emptied and peaks are reset.

    Args:
        name: the GPU that a virtual one stands for; see `vramlab gpus`.
        count: how many virtual GPUs; real ones are used where there are as many.
        virtual: True: always a virtual one. False: insist on a real one. None: a real one if there
            is one (or `count` of them); the environment variable VRAMLAB_GPU decides otherwise
            (`T4`, `T4:4`, `real`). Inside of a `with VirtualGPU(...)`, or under `vramlab run`, the
            one that is attached there counts as the machine's.
        values: compute values on the CPU (small programs only); see `VirtualGPU`.
        quiet: do not print.

    Raises:
        UnknownGPUError: no GPU of that name is in the catalogue.
        RuntimeError: a real GPU was insisted on, and there is none, or a virtual one hides it; or
            another thread has a virtual one attached.
        ValueError: a count below 1, or VRAMLAB_GPU names no number of GPUs.
    """
    with ATTACHED.lock:
        if ATTACHED.for_program is not None:
            ATTACHED.check_thread()
        detach()
        gpu = _attach(name, count, virtual, values)
    if not quiet:
        print(describe(gpu))
    return gpu


def _attach(name: str | None, count: int | None, virtual: bool | None, values: bool) -> AttachedGPU:
    wanted = os.environ.get(ENVIRONMENT)
    if wanted and virtual is None:
        if wanted.lower() == "real":
            virtual = False
        else:
            virtual = True
            name, given = _named_by_environment(wanted)
            count = count if given is None else given
    insists = virtual is False
    if virtual is None:
        virtual = not torch.cuda.is_available() or torch.cuda.device_count() < (count or 1)
    return _attach_virtual(name, count, values) if virtual else _attach_machines(insists)


def detach() -> None:
    """Take away the virtual GPU that `attach()` has attached. Without one, nothing happens."""
    with ATTACHED.lock:
        if ATTACHED.for_program is not None:
            ATTACHED.for_program.detach()


def attached() -> AttachedGPU | None:
    """Return what PyTorch runs on now: a virtual GPU, a real one, or None if there is neither."""
    gpu = attached_virtual()
    if gpu is not None:
        return gpu
    return _real() if torch.cuda.is_available() else None


def catalogue_model() -> GPUModel:
    """Find the catalogue's entry of the GPU that is attached, with its bandwidths and peaks.

    Raises:
        UnknownGPUError: the real GPU is not in the catalogue.
        RuntimeError: no GPU is attached.
    """
    gpu = attached()
    if gpu is None:
        raise RuntimeError("no GPU is attached: call vramlab.attach() first")
    if isinstance(gpu, VirtualGPU):
        return gpu.model
    return catalogue.find_device(gpu.name, torch.cuda.get_device_properties(0).total_memory)


def describe(gpu: AttachedGPU) -> str:
    """Name a GPU in one line: whether it is virtual, its memory, how many there are."""
    total_bytes = torch.cuda.get_device_properties(0).total_memory
    kind = "Virtual GPU" if gpu.virtual else "Real GPU"
    if not gpu.virtual and "VRAMLAB_NATIVE_GPU" in os.environ:
        kind = "Virtual GPU (native engine)"
    times = f"{gpu.count} x " if gpu.count > 1 else ""
    return f"{kind}: {times}{gpu.name}, {total_bytes / GIB:.2f} GiB, PyTorch {torch.__version__}"


def _named_by_environment(wanted: str) -> tuple[str, int | None]:
    """Read `T4` or `T4:4`: the GPU's name, and how many there are to be."""
    name, colon, number = wanted.partition(":")
    if not colon:
        return name, None
    if not number.isascii() or not number.isdecimal() or int(number) < 1:
        raise ValueError(
            f"invalid {ENVIRONMENT}={wanted!r}: put the number of GPUs after the colon, for "
            f"example {ENVIRONMENT}={name}:2"
        )
    return name, int(number)


def _attach_virtual(name: str | None, count: int | None, values: bool) -> VirtualGPU:
    model = catalogue.find(name or DEFAULT)
    ATTACHED.for_program = VirtualGPU(
        model.name, 1 if count is None else count, values=values
    ).attach()
    return ATTACHED.for_program


def _attach_machines(insists: bool) -> AttachedGPU:
    """Take the GPU that the machine has: a real one, or what is attached in its place."""
    outer = attached_virtual()
    if insists and outer is not None:
        raise RuntimeError(
            f"{outer!r} is attached, and torch.cuda answers for it: detach it first, or leave its "
            "`with`, to work on a real GPU"
        )
    if not torch.cuda.is_available():
        raise RuntimeError(
            "there is no GPU on this machine that PyTorch can use; leave out virtual=False (or "
            f"unset {ENVIRONMENT}) to work on a virtual one"
        )
    if torch.cuda.is_initialized():  # before that there is nothing, and peaks cannot be reset
        gc.collect()
        torch.cuda.empty_cache()
        for index in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(index)
    return _real() if outer is None else outer


def _real() -> RealGPU:
    return RealGPU(torch.cuda.get_device_name(0), torch.cuda.device_count())
