"""Which plan of cuDNN's is taken, and what is allocated meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vramlab.cudnn.plans import BenchmarkSettings, Plans
from vramlab.cudnn.problems import Convolution
from vramlab.errors import OutOfDeviceMemory

LAYER = Convolution(
    "forward", "f32", (1, 8, 4, 4), (8, 8, 3, 3), (1, 8, 4, 4), (1, 1), (1, 1), (1, 1)
)
OTHER = replace(LAYER, dtype="f16")


class Gpu:
    """A GPU on which plans are executed, and that writes down what that takes."""

    def __init__(self, limit_bytes: int = 1000, **environment: str) -> None:
        self.limit_bytes = limit_bytes
        self.free_bytes: int | None = None
        self.settings = BenchmarkSettings()
        self.plans = Plans(self.settings, environment)
        self._events: list[object] = []

    def take(self, size_bytes: int, what: str) -> int:
        if size_bytes > self.limit_bytes:
            self._events.append(f"no {size_bytes}")
            raise OutOfDeviceMemory("", requested_bytes=size_bytes, segment_bytes=size_bytes)
        self._events.append(size_bytes)
        return size_bytes

    def give(self, handle: int) -> None:
        assert self._events[-1] == handle  # at once

    def largest_bytes(self) -> int:
        return self.limit_bytes if self.free_bytes is None else self.free_bytes

    def empty_cache(self) -> None:
        self._events.append("emptied")

    def run(
        self, *sizes: int, of: Convolution = LAYER, benchmark: bool = False, thread: str = "main"
    ) -> list[object]:
        self._events = []
        self.plans.execute(of, sizes, self, thread=thread, benchmark=benchmark)
        return self._events


def test_the_first_plan_is_taken() -> None:
    gpu = Gpu()
    assert gpu.run(30, 500, 20) == [30]
    assert gpu.run(30, 500, 20) == [30]
    assert gpu.run(0, 500, of=OTHER) == []


def test_a_benchmark_allocates_the_largest_workspace_and_empties_the_cache() -> None:
    gpu = Gpu()
    assert gpu.run(30, 500, 20, benchmark=True) == [500, "emptied", 30]
    assert gpu.run(30, 500, 20, benchmark=True) == [30]  # remembered
    gpu.settings.empties_cache = False
    assert gpu.run(30, 500, of=OTHER, benchmark=True) == [500, 30]


def test_a_chosen_plan_is_not_timed_afterwards() -> None:
    gpu = Gpu()
    gpu.run(30, 500)
    assert gpu.run(30, 500, benchmark=True) == [30]


def test_each_thread_has_its_own_plans() -> None:
    gpu = Gpu()
    gpu.run(30, 500, benchmark=True)
    assert gpu.run(30, 500, benchmark=True, thread="autograd") == [500, "emptied", 30]
    gpu.plans.forget("main")
    assert gpu.run(30, 500, benchmark=True) == [500, "emptied", 30]


def test_a_benchmark_leaves_out_what_is_larger_than_the_free_memory() -> None:
    gpu = Gpu(400)
    assert gpu.run(500, 30, 100, benchmark=True) == [100, "emptied", 30]


def test_where_the_trial_does_not_fit_half_of_it_is_tried() -> None:
    """900 and 450 do not fit, 225 does: of the plans, 100 and 30 remain."""
    gpu = Gpu(300)
    gpu.free_bytes = 1000  # in pieces
    assert gpu.run(900, 100, 30, benchmark=True) == ["no 900", "no 450", 225, "emptied", 100]


def test_where_memory_runs_out_the_next_plan_is_tried() -> None:
    gpu = Gpu(300)
    assert gpu.run(900, 400, 30) == ["no 900", "no 400", 30]
    gpu.limit_bytes = 20
    assert gpu.run(900, 400, 30, 10) == ["no 30", "no 900", "no 400", "no 30", 10]


@pytest.mark.parametrize(("benchmark", "how"), [(False, "GET"), (True, "FIND")])
def test_no_plan_fits(benchmark: bool, how: str) -> None:
    gpu = Gpu(300)
    with pytest.raises(RuntimeError, match=f"^{how} was unable to find an engine to execute"):
        gpu.run(900, 400, benchmark=benchmark)


def test_a_limit_of_timed_plans() -> None:
    """Of the two that are timed, none fits any more when it is executed; all fit with limit 0."""
    gpu = Gpu()
    gpu.settings.limit = 2
    assert gpu.plans._time([30, 500, 20], gpu) == [30, 500]
    gpu.settings.limit = 0
    assert gpu.plans._time([30, 500, 20], gpu) == [30, 500, 20]


def test_the_cache_of_plans_has_a_limit() -> None:
    gpu = Gpu(TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT="1")
    gpu.run(30, 500)
    gpu.run(30, 500, of=OTHER)
    assert gpu.run(30, 500, of=OTHER, benchmark=True) == [30]
    assert gpu.run(30, 500, benchmark=True) == [500, "emptied", 30]
    gpu = Gpu(TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT="-1")
    for _ in range(2):
        assert gpu.run(30, 500, benchmark=True) == [500, "emptied", 30]
