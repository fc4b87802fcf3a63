"""Threads see the GPU that is attached when they start, and have their own device and streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch
from allocator_invariants import check
from torch import nn
from torch_state import state_of_thread

from vramlab.gpu import VirtualGPU

T = TypeVar("T")


def in_a_thread(work: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_threads_inherit_the_gpu(gpus: VirtualGPU) -> None:
    assert in_a_thread(lambda: torch.zeros(3).cuda().device) == torch.device("cuda:0")
    assert in_a_thread(torch.cuda.is_available)
    assert in_a_thread(lambda: torch.zeros(128, device="cuda:1").sum().device.index) == 1


@pytest.fixture
def with_workspaces() -> Iterator[None]:
    """A GPU by the rules of PyTorch 2.13: since 2.15 workspaces are not kept."""
    with VirtualGPU("A100-40GB", torch_version="2.13"):
        yield


@pytest.mark.usefixtures("with_workspaces")
def test_each_thread_has_its_workspace_and_leaves_it_to_the_next() -> None:
    x = torch.zeros(64, 64, device="cuda")  # 16 KiB, as every product of it
    before = torch.cuda.memory_allocated()
    kept = [x @ x]
    workspace = torch.cuda.memory_allocated() - before - 16384
    assert workspace == 8_519_680
    kept.append(in_a_thread(lambda: x @ x))
    kept.append(in_a_thread(lambda: x @ x))
    # this thread keeps its own; the second thread got that of the first, which had ended
    assert torch.cuda.memory_allocated() - before == 2 * workspace + 3 * 16384
    kept[-1].requires_grad_().matmul(x).sum().backward()
    # and the thread of the backward pass gets it after them
    assert torch.cuda.memory_allocated() - before == 2 * workspace + 4 * 16384


@pytest.mark.usefixtures("with_workspaces")
def test_threads_at_the_same_time_have_a_workspace_each() -> None:
    x = torch.zeros(64, 64, device="cuda")
    barrier = threading.Barrier(3)

    def work() -> None:
        x @ x
        barrier.wait(10)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: work(), range(3)))
    assert torch.cuda.memory_allocated() == 3 * 8_519_680 + 16384


def test_autocast_and_backward_in_a_thread(gpu: VirtualGPU) -> None:
    layer = nn.Linear(8, 8).cuda()

    def work() -> torch.dtype:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = layer(torch.zeros(2, 8, device="cuda"))
        y.float().sum().backward()
        return y.dtype

    assert in_a_thread(work) == torch.bfloat16
    assert layer.weight.grad is not None


def test_a_thread_that_outlives_the_gpu_is_on_the_host() -> None:
    go, answers = threading.Event(), []

    def work() -> None:
        go.wait(10)
        answers.append(torch.zeros(2).add(1).tolist())
        answers.append(torch.cuda.is_available())

    with VirtualGPU("T4", torch_version="2.13"):
        thread = threading.Thread(target=work)
        thread.start()
    go.set()
    thread.join()
    assert answers == [[1, 1], False]


def test_a_pool_that_was_there_before_sees_the_gpu_and_forgets_it() -> None:
    with ThreadPoolExecutor(1) as pool:
        before = pool.submit(state_of_thread).result()  # its thread has started
        with VirtualGPU("T4", torch_version="2.13") as gpu:
            tensors = [pool.submit(torch.zeros, 128, device="cuda", requires_grad=True).result()]
            assert tensors[0].device == torch.device("cuda:0")
            assert torch.cuda.memory_allocated() == 512
            assert list(pool.map(lambda n: (tensors[0] + n).device.index, range(3))) == [0, 0, 0]
            pool.submit(lambda: tensors[0].mul(2).sum().backward()).result()
            assert tensors[0].grad is not None
            assert torch.cuda.memory_allocated() == 2 * 512
            tensors.clear()
            assert torch.cuda.memory_allocated() == 0
            check(gpu.machine.devices[0].allocator)
        assert pool.submit(state_of_thread).result() == before
        assert pool.submit(torch.zeros, 3).result().device == torch.device("cpu")


def test_a_call_that_is_still_waiting_when_the_gpu_goes_runs_on_the_host() -> None:
    with ThreadPoolExecutor(1) as pool:
        go = threading.Event()
        pool.submit(go.wait)
        with VirtualGPU("T4", torch_version="2.13"):
            waiting = pool.submit(torch.zeros, 3)
        go.set()
        assert waiting.result().device == torch.device("cpu")
