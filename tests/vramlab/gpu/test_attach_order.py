"""GPUs are detached in any order, in all threads, with modes of others entered in between."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar
from unittest import mock

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from torch_state import state_of_thread, state_of_torch, train_a_little

import vramlab
from vramlab import attachment
from vramlab.gpu import VirtualGPU, attached
from vramlab.gpu.attached_gpus import ATTACHED

pytestmark = pytest.mark.long

T = TypeVar("T")

NAMES = ("T4", "L4", "V100-16GB")
COUNTS = (1, 2, 3)

ORDERS = list(itertools.permutations(range(3)))


def machines() -> list[VirtualGPU]:
    return [VirtualGPU(name, count) for name, count in zip(NAMES, COUNTS, strict=True)]


def is_there(gpu: VirtualGPU | None) -> bool:
    """Whether the calling thread works on this GPU, and on no other: with None, on none."""
    if gpu is None:
        return not torch.cuda.is_available() and torch.zeros(2).device.type == "cpu"
    before = [g.machine.devices[0].allocator.allocated_bytes for g in {gpu, *ATTACHED}]
    x = torch.zeros(3, device="cuda")
    here = torch.cuda.memory_allocated() == gpu.machine.devices[0].allocator.allocated_bytes
    counted = torch.cuda.device_count() == gpu.count
    device = x.cpu().cuda().device == torch.device("cuda:0") == (x + 1).device
    linear = torch.nn.Linear(4, 4, device="cuda")
    with torch.autocast("cuda"):
        y = linear(torch.zeros(2, 4, device="cuda"))
    halved = y.dtype == torch.float16
    y.sum().backward()
    del x, y, linear
    for g in {gpu, *ATTACHED}:
        g.machine.devices[0].free_workspaces()
    after = [g.machine.devices[0].allocator.allocated_bytes for g in {gpu, *ATTACHED}]
    return here and counted and device and halved and before == after


@contextmanager
def unchanged() -> Iterator[None]:
    """What the body changes, it has put back at its end."""
    before = state_of_torch()
    yield
    after = state_of_torch()
    assert {name for name in before | after if before.get(name) != after.get(name)} == set()


@pytest.fixture(scope="module", autouse=True)
def _used_before() -> None:
    """Load what torch and Python load when a GPU, or a mode of others, is first used."""
    with VirtualGPU("T4"):
        train_a_little()
    for make in OTHERS.values():
        with make():
            torch.ones(2).sin()


def newest(gpus: Sequence[VirtualGPU], gone: set[int]) -> VirtualGPU | None:
    """The one attached last of those that are not gone."""
    return next((gpu for at, gpu in reversed([*enumerate(gpus)]) if at not in gone), None)


@pytest.mark.parametrize("order", ORDERS)
def test_three_gpus_go_in_any_order(order: tuple[int, ...]) -> None:
    gpus = machines()
    with unchanged():
        for gpu in gpus:
            gpu.attach()
            assert is_there(gpu)
        gone: set[int] = set()
        for at in order:
            gpus[at].detach()
            gone.add(at)
            assert attached() is newest(gpus, gone)
            assert is_there(newest(gpus, gone))


class Worker:
    """A thread that runs the jobs it receives, one after the other, until it is stopped."""

    def __init__(self) -> None:
        self._work: Callable[[], Any] | None = None
        self._result: Any = None
        self._todo, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def do(self, work: Callable[[], T]) -> T:
        self._work = work
        self._todo.release()
        self._done.acquire()
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result  # type: ignore[no-any-return]

    def home(self) -> None:
        self._work = None
        self._todo.release()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._todo.acquire()
            if self._work is None:
                return
            try:
                self._result = self._work()
            except BaseException as error:
                self._result = error
            self._done.release()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("started", range(1, 4))
def test_a_thread_sees_the_gpu_that_is_there_now(started: int, order: tuple[int, ...]) -> None:
    """It was started while one, two or three were attached, and outlives them all."""
    gpus = machines()
    with unchanged():
        for gpu in gpus[:started]:
            gpu.attach()
        worker = Worker()
        try:
            assert worker.do(lambda: is_there(gpus[started - 1]))
            for gpu in gpus[started:]:
                gpu.attach()
            gone: set[int] = set()
            assert worker.do(lambda: is_there(gpus[-1]))
            for at in order:
                gpus[at].detach()
                gone.add(at)
                here = newest(gpus, gone)
                assert worker.do(lambda here=here: is_there(here))  # type: ignore[misc]
                assert is_there(here)
        finally:
            worker.home()


def test_a_thread_may_attach_what_another_detaches() -> None:
    worker = Worker()
    before = worker.do(state_of_thread)
    first, second = VirtualGPU("T4"), VirtualGPU("L4", 2)
    try:
        with unchanged():
            worker.do(first.attach)
            assert worker.do(lambda: is_there(first))
            first.detach()
            assert worker.do(lambda: is_there(None))
            second.attach()
            with pytest.raises(RuntimeError, match="attached by thread 'MainThread'"):
                worker.do(first.attach)
            assert is_there(second)
            second.detach()
            worker.do(first.attach)
            assert worker.do(lambda: is_there(first))
            with pytest.raises(RuntimeError, match="attaching is process-wide"):
                second.attach()
            with pytest.raises(RuntimeError, match="attaching is process-wide"):
                vramlab.attach("L4", virtual=True, quiet=True)
            worker.do(first.detach)
        assert worker.do(state_of_thread) == before
    finally:
        worker.home()


def test_what_another_thread_detaches_leaves_no_modes() -> None:
    worker = Worker()
    try:
        for detach in (lambda gpu: gpu.detach, lambda gpu: lambda: gpu.__exit__(None, None, None)):
            with unchanged():
                before = state_of_thread()
                gpu = VirtualGPU("T4").attach()
                worker.do(detach(gpu))
                assert state_of_thread() == before
                assert is_there(None)
    finally:
        worker.home()


@pytest.mark.parametrize("count", [2, 4, 8])
def test_threads_that_attach_at_the_same_time(count: int) -> None:
    """Each thread either has its GPU in turn, or gets an error that names the cause."""
    barrier = threading.Barrier(count)
    results: list[Any] = []

    def work() -> None:
        barrier.wait(10)
        try:
            with VirtualGPU("T4") as gpu:
                for _ in range(20):
                    x = torch.ones(1 << 16, device="cuda")
                results.append((x.is_cuda, gpu.machine.devices[0].allocator.allocated_bytes))
        except Exception as error:
            results.append(error)

    with unchanged():
        threads = [threading.Thread(target=work) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert is_there(None)
        assert vramlab.attached() is None
    refused = [result for result in results if isinstance(result, RuntimeError)]
    assert len(results) == count > len(refused)
    assert all("attaching is process-wide" in str(error) for error in refused)
    # 2**16 numbers of 4 B: the new tensor is there before the old one goes
    assert {result for result in results if result not in refused} == {(True, 2**18)}


def test_a_mock_that_outlives_the_gpu_brings_nothing_back() -> None:
    """`mock.patch` sets again what it found: a patch of ours, which then does nothing."""
    with mock.patch.object(threading.Thread, "start"):
        pass
    starting = mock.patch("threading.Thread.start", autospec=True)
    submitting = mock.patch("concurrent.futures.ThreadPoolExecutor.submit", autospec=True)
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit
    try:
        gpu = VirtualGPU("T4").attach()
        starting.start(), submitting.start()
        gpu.detach()
        starting.stop(), submitting.stop()
        seen: list[Any] = []
        before = threading.Thread(target=lambda: None).run
        thread = threading.Thread(target=lambda: seen.append(state_of_thread()))
        thread.start()
        assert thread.run.__func__ is before.__func__  # type: ignore[attr-defined]
        thread.join()
        with ThreadPoolExecutor(1) as pool:
            seen.append(pool.submit(state_of_thread).result())
        threading.Thread.start, ThreadPoolExecutor.submit = start, submit  # type: ignore
        thread = threading.Thread(target=lambda: seen.append(state_of_thread()))
        thread.start()
        thread.join()
        assert seen == seen[-1:] * 3
    finally:
        threading.Thread.start, ThreadPoolExecutor.submit = start, submit  # type: ignore


class Functions(TorchFunctionMode):
    """Notes the functions that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class Ops(TorchDispatchMode):
    """Notes the ops that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


OTHERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "nothing": nullcontext,
    "torch.device": lambda: torch.device("cpu"),
    "a function mode": Functions,
    "a dispatch mode": Ops,
    "FlopCounterMode": lambda: FlopCounterMode(display=False),
    "autocast": lambda: torch.autocast("cpu"),
}


def interleavings() -> list[tuple[str, ...]]:
    """All orders in which a GPU and two modes of others come and go, each mode after it came.

    Modes of others leave by taking the top of the stack: among themselves, last in, first out.
    """
    events = ("gpu comes", "gpu goes", "first comes", "second comes", "second goes", "first goes")
    return [
        order
        for order in itertools.permutations(events)
        if order.index("gpu comes") < order.index("gpu goes")
        and [e for e in order if not e.startswith("gpu")] == list(events[2:])
    ]


@pytest.mark.parametrize("order", interleavings(), ids=", ".join)
@pytest.mark.parametrize(
    "kinds", [("FlopCounterMode", "a dispatch mode"), ("a function mode", "torch.device")]
)
def test_a_gpu_and_modes_come_and_go_in_any_order(
    kinds: tuple[str, str], order: tuple[str, ...]
) -> None:
    gpu = VirtualGPU("T4")
    modes = {name: OTHERS[kind]() for name, kind in zip(("first", "second"), kinds, strict=True)}
    with unchanged():
        for event in order:
            who, what = event.split()
            if who == "gpu":
                gpu.attach() if what == "comes" else gpu.detach()
            elif what == "comes":
                modes[who].__enter__()
            else:
                modes[who].__exit__(None, None, None)
            is_here = attached() is gpu
            assert torch.cuda.is_available() == is_here
            if is_here:
                x = torch.zeros(3, device="cuda")
                assert x.sin().is_cuda
                assert torch.cuda.memory_allocated() == 512
                del x
            assert torch.ones(2).sin().device.type == "cpu"


def test_fake_tensors_come_before_and_go_between() -> None:
    with unchanged():
        mode = FakeTensorMode()
        mode.__enter__()
        gpu = VirtualGPU("T4").attach()
        assert type(torch.zeros(3, device="meta")).__name__ == "FakeTensor"
        mode.__exit__(None, None, None)
        assert is_there(gpu)
        gpu.detach()


def test_a_default_device_stays() -> None:
    with unchanged():
        first = VirtualGPU("T4").attach()
        torch.set_default_device("cuda")
        try:
            second = VirtualGPU("L4", 2).attach()
            first.detach()
            assert torch.zeros(3).device == torch.device("cuda:0")
            assert torch.cuda.device_count() == 2
            second.detach()
        finally:
            torch.set_default_device(None)


class TestAttachInsideAWith:
    """`vramlab.attach()` inside `with VirtualGPU(...)`, which ends first."""

    @pytest.fixture(autouse=True)
    def clean(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.delenv(attachment.ENVIRONMENT, raising=False)
        yield
        vramlab.detach()

    def test_it_stays(self) -> None:
        with unchanged():
            with VirtualGPU("T4"):
                gpu = vramlab.attach("L4", virtual=True, quiet=True)
                assert isinstance(gpu, VirtualGPU)
                assert gpu.name == "L4"
                assert is_there(gpu)
            assert vramlab.attached() is gpu
            assert is_there(gpu)
            vramlab.detach()
            assert is_there(None)

    def test_the_gpu_outside_is_the_machines(self, capsys: pytest.CaptureFixture[str]) -> None:
        with VirtualGPU("T4") as outer:
            gpu = vramlab.attach("L4")
            assert gpu is outer is vramlab.attached()
            assert capsys.readouterr().out.startswith("Virtual GPU: T4, 14.74 GiB")
            assert vramlab.attach("L4", 2, quiet=True) is not outer  # it has but one
            assert torch.cuda.device_count() == 2
            vramlab.detach()
            assert is_there(outer)

    def test_another_takes_its_place(self) -> None:
        with unchanged():
            vramlab.attach("T4", virtual=True, quiet=True)
            with VirtualGPU("L4", 2) as inner:
                gpu = vramlab.attach("V100-16GB", 3, quiet=True)
                assert isinstance(gpu, VirtualGPU)
                assert is_there(gpu)
                vramlab.detach()
                assert is_there(inner)
            assert vramlab.attached() is None
            assert is_there(None)

    def test_the_real_one_is_not_there(self) -> None:
        with VirtualGPU("T4") as gpu:
            with pytest.raises(RuntimeError, match=r"VirtualGPU\('T4', count=1\) is attached"):
                vramlab.attach(virtual=False)
            assert is_there(gpu)


def test_a_gpu_attached_anew_is_no_longer_the_programs() -> None:
    """`vramlab.detach()` takes away what `vramlab.attach()` has attached, and nothing else."""
    gpu = vramlab.attach("T4", virtual=True, quiet=True)
    assert isinstance(gpu, VirtualGPU)
    gpu.detach()
    with gpu:
        vramlab.detach()
        assert attached() is gpu
    assert attached() is None
