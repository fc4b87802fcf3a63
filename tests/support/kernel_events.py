"""What the tests of kernel rules share: a few GPUs, and how to see what one op takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from vramlab.kernels import TABLE, Convolve, KernelContext, Marker, replay


@dataclass(frozen=True)
class Model:
    """The facts about a GPU that rules use."""

    multiprocessors: int
    max_threads_per_multiprocessor: int
    compute_capability: tuple[int, int]


V100 = Model(80, 2048, (7, 0))
T4 = Model(40, 1024, (7, 5))
RTX3090 = Model(82, 1536, (8, 6))
B200 = Model(148, 2048, (10, 0))
A100 = Model(108, 2048, (8, 0))
H200 = Model(132, 2048, (9, 0))


class Recorder:
    """Writes down what `replay` asks for: ("take", bytes), ("give", bytes), ("output", index)..."""

    def __init__(self, outputs: list[torch.Tensor | None]) -> None:
        self.outputs = outputs
        self.events: list[tuple[str, Any]] = []

    def take(self, size_bytes: int, what: str) -> int:
        self.events.append(("take", size_bytes))
        return size_bytes

    def give(self, handle: int) -> None:
        self.events.append(("give", handle))

    def output(self, index: int, storage_bytes: int | None) -> None:
        if self.outputs[index] is None:
            return
        self.events.append(("output", index if storage_bytes is None else (index, storage_bytes)))

    def workspace(self, library: Marker) -> None:
        self.events.append(("workspace", library.name))

    def convolve(self, step: Convolve) -> None:
        self.events.append(("convolve", step.convolution))


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def flat(result: Any) -> list[torch.Tensor | None]:
    """The tensors that an op returns in the order of its schema, None for one that is undefined."""
    if isinstance(result, (tuple, list)):
        return [each for part in result for each in flat(part)]
    return [result] if result is None or isinstance(result, torch.Tensor) else []


Events = Callable[..., list[tuple[str, Any]]]


@pytest.fixture
def events() -> Events:
    """Run an op on meta tensors and return what its rule has done, last give-backs included."""

    def run(
        func: Any,
        *args: Any,
        gpu: Model = V100,
        version: tuple[int, int] = (2, 13),
        environment: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> list[tuple[str, Any]]:
        rule = TABLE.find(func)
        assert rule is not None, f"no rule for {func}"
        outputs = flat(func(*args, **kwargs))
        context = KernelContext(gpu, version, environment or {})
        recorder = Recorder(outputs)
        replay(rule.steps(context, func, args, kwargs, outputs), len(outputs), recorder)
        return recorder.events

    return run


@pytest.fixture
def takes(events: Events) -> Callable[..., list[int]]:
    """The sizes in bytes that an op takes, in order."""

    def run(func: Any, *args: Any, **kwargs: Any) -> list[int]:
        return [size for kind, size in events(func, *args, **kwargs) if kind == "take"]

    return run
