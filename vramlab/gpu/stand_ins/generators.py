"""`torch.Generator(device="cuda")`: a CPU generator that says it is the GPU's.

Random numbers have no values on a virtual GPU, so a generator needs only to be there, to be seeded,
and to have a state that can be saved and restored.
"""

from __future__ import annotations

from typing import Any

import torch

from vramlab.gpu.core.session import Session
from vramlab.gpu.torch_internals import Generator as PlainGenerator


class _AnyGenerator(type(PlainGenerator)):  # type: ignore[misc]
    """Makes generators that torch itself has made instances of `Generator` too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, PlainGenerator)


def install(session: Session) -> None:
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

        def __init__(self, device: Any = "cpu") -> None:
            super().__init__()

        @property
        def device(self) -> torch.device:
            return self._device

    patches.set(torch, "Generator", Generator)
    patches.set(
        torch.cuda,
        "default_generators",
        tuple(Generator(torch.device("cuda", gpu.index)) for gpu in machine.devices),
    )
