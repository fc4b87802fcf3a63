"""What all tests share: how they spend the processor's time. Nothing here changes a result."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext

import pytest

from vramlab.garbage import lasting_imports

# Workers of pytest-xdist share the cores already, and threads that wait for a core are busy
# waiting. Here, before anything imports torch; and for the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# As in pools: tests run programs in threads, and fork.
os.environ.setdefault("MKL_DISABLE_FAST_MM", "1")

# Workers compute with the same large tensors again and again: glibc keeps the memory, where every
# one of them would be pages to be mapped and cleared. It reads these when a process starts.
os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", f"{2**30}")
os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", f"{2**30}")

# Whatever is set up on this machine, `vramlab run` is tested on the virtual GPU.
os.environ["VRAMLAB_ENGINE"] = "portable"

# Nor is cuDNN's library asked, which some machines have: answers are those of the table.
os.environ["VRAMLAB_CUDNN"] = "table"


# What is started in the background ignores these, and so would all that tests start and end.
for _number, _default in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)

WAITING_WORKERS = 1
"""So many more workers than cores: what tests start, and tests of limits in time, is waited for."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Give the number of workers for `-n auto`; None leaves it to pytest-xdist.

    Each worker holds a PyTorch, so their number does not go up by a factor.
    """
    if config.option.numprocesses != "auto" or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    can_tell = hasattr(os, "sched_getaffinity")  # macOS cannot
    cores = len(os.sched_getaffinity(0)) if can_tell else os.cpu_count() or 1
    return cores + WAITING_WORKERS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start long tests first, so that the last worker does not wait for one."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage in what tests import: there is none, and it takes long."""
    with lasting_imports():
        return (yield)


@pytest.fixture(scope="module", autouse=True)
def _quick_collections() -> None:
    """Keep what is there before a module's first test out of the garbage collections of its tests.

    A collection that goes over all that was ever imported takes a quarter of a second, and half of
    one once nbgrader is there.
    """
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Start one process that forks the pools of judges for all workers, and two for programs.

    They import torch, or nbgrader, when the first of them is asked for.
    """
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        undo = ExitStack()
        undo.enter_context(_warm_job_server())
        if sys.platform == "linux":
            undo.enter_context(_warm_python())
        config.add_cleanup(undo.close)


@pytest.fixture(scope="session")
def warm_job_server() -> Iterator[None]:
    """Fork the pools of all tests, also those in kernels, from a process that has torch imported.

    That is started by the first test that asks for a pool.
    """
    from vramlab_classroom.judge.warm_job_server import VARIABLE

    with nullcontext() if VARIABLE in os.environ else _warm_job_server():
        yield


@contextmanager
def _warm_python() -> Iterator[None]:
    import warm_python

    with (
        warm_python.started() as python,
        warm_python.started(warm_python.CLASSROOM) as classroom,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(warm_python.VARIABLE, f"{python}")
        patch.setenv(warm_python.CLASSROOM_VARIABLE, f"{classroom}")
        patch.setenv("PYTHON_EXEC", f"{python}")  # where torchrun looks for it
        yield


@contextmanager
def _warm_job_server() -> Iterator[None]:
    from vramlab_classroom.judge.job_pool import neutral_environment
    from vramlab_classroom.judge.warm_job_server import VARIABLE, WarmJobServer

    with WarmJobServer(neutral_environment()) as pools, pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, f"{pools.address}")
        yield
