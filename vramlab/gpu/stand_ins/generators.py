"""`torch.Generator(device="cuda")`: a CPU generator that says it is the GPU's.

Where values are computed, ops on a GPU draw from that GPU's default generator, as on CUDA.
Elsewhere random numbers have no values, so a generator needs only to be there, to be seeded, and to
have a state that can be saved and restored. A state that another rank broadcast has no values on a
virtual GPU: setting it leaves a generator as it is.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from vramlab.gpu.core.patching.late_imports import changed_when_imported
from vramlab.gpu.core.session import Session
from vramlab.gpu.core.storage_record import has_values, record_of
from vramlab.gpu.torch_internals import DisableTorchFunction, plain_random_shards
from vramlab.gpu.torch_internals import Generator as PlainGenerator


class _AnyGenerator(type(PlainGenerator)):  # type: ignore[misc]
    """Makes generators that torch itself has made instances of `Generator` too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, PlainGenerator)


def _is_unknown(state: torch.Tensor) -> bool:
    with DisableTorchFunction():
        return not has_values(state) and record_of(state) is not None


def install(session: Session) -> AbstractContextManager[None]:
    """Replace `torch.Generator` by one that knows the machine's GPUs."""
    machine, patches = session.machine, session.patches
    base: Any = PlainGenerator

    class Generator(base, metaclass=_AnyGenerator):  # type: ignore[misc]
        _device: torch.device

        def __new__(cls, device: Any = "cpu") -> Generator:
            wanted = torch.device(device)
            made: Generator = base.__new__(cls, "cpu" if wanted.type == "cuda" else wanted)
            if wanted.type == "cuda":
                index = machine.current_device() if wanted.index is None else wanted.index
                machine.device(index)
                wanted = torch.device("cuda", index)
            made._device = wanted
            return made

        def manual_seed(self, seed: int) -> Any:
            """Set the seed: while a graph is captured, only to what it is."""
            if self._is_captured() and seed != self.initial_seed():
                raise RuntimeError(
                    "CUDAGeneratorImpl::set_current_seed can be called during stream capture only "
                    "if new seed is the same as the original seed."
                )
            return super().manual_seed(seed)

        def seed(self) -> int:
            """Set the seed to a random number, which a graph cannot do."""
            if self._is_captured():
                raise RuntimeError(
                    "Cannot call CUDAGeneratorImpl::seed during CUDA graph capture. If you need "
                    "this call to be captured, please file an issue. Current "
                    "cudaStreamCaptureStatus: cudaStreamCaptureStatusActive"
                )
            return super().seed()

        def _is_captured(self) -> bool:
            if self._device.type != "cuda":
                return False
            return machine.capture_on(machine.current_device()) is not None

        def __init__(self, device: Any = "cpu") -> None:
            super().__init__()

        @property
        def device(self) -> torch.device:
            return self._device

        def set_state(self, state: torch.Tensor) -> Generator:
            if not _is_unknown(state):
                super().set_state(state)
            return self

    set_rng_state = torch.set_rng_state

    def set_known_state(new_state: torch.Tensor) -> None:
        if not _is_unknown(new_state):
            set_rng_state(new_state)

    patches.set(torch, "set_rng_state", set_known_state)
    patches.set(torch.random, "set_rng_state", set_known_state)
    patches.set(torch, "Generator", Generator)
    for gpu in machine.devices:
        gpu.generator = Generator(torch.device("cuda", gpu.index))
        # As on CUDA, a seed that was set before the GPU is used is its seed, too.
        gpu.generator.manual_seed(torch.initial_seed())
    patches.set(torch.cuda, "default_generators", tuple(gpu.generator for gpu in machine.devices))
    change = partial(plain_random_shards, patches)
    return changed_when_imported({"torch.distributed.tensor._random": change})
