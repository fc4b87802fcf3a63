"""CUDA graphs and memory pools, by numbers that PyTorch's own code gave on the native engine.

`tests/vramlab/native/test_graphs.py` compares both engines event by event.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU
from vramlab.units import MIB

STATES = 2 * 512
"""A generator's seed and offset, of 8 bytes each: a block each."""
WORKSPACE = 8_519_680
"""cuBLAS's, before Hopper: :4096:2:16:8."""


@pytest.fixture
def t4() -> Any:
    with VirtualGPU("T4", on_value="nan", torch_version="2.13") as gpu:
        yield gpu
    gc.collect()


def pools() -> list[tuple[int, int]]:
    return sorted({tuple(each["segment_pool_id"]) for each in torch.cuda.memory_snapshot()})


def capture(function: Callable[[], Any], **how: Any) -> tuple[torch.cuda.CUDAGraph, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **how):
        result = function()
    return graph, result


def in_bytes() -> tuple[int, int]:
    return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()


def test_a_graph_keeps_what_its_capture_reserved(t4: VirtualGPU) -> None:
    layers = [nn.Linear(1024, 1024, bias=False) for _ in range(4)]
    model = nn.Sequential(*layers).cuda().requires_grad_(False)
    x = torch.zeros(8192, 1024, device="cuda")
    model(x)
    weights, output = 4 * 4 * MIB, 32 * MIB
    before = weights + output + WORKSPACE
    assert torch.cuda.memory_allocated() == before
    graph, y = capture(lambda: model(x))
    # Weights, x and cuBLAS's workspace are in segments of 20, 32 and 20 MiB; seed and offset in
    # one of 2 MiB. The graph's pool has two outputs of 32 MiB, and a workspace of its stream.
    assert in_bytes() == (
        before + STATES + output + WORKSPACE,
        (20 + 32 + 20 + 2 + 32 + 32 + 20) * MIB,
    )
    assert pools() == [(0, 0), (1, 0)] == [(0, 0), graph.pool()]
    if torch.__version__ >= (2, 13):
        stats = torch.cuda.memory_stats()
        assert stats["reserved_bytes_by_private_pools.1_0.all.current"] == 84 * MIB
    graph.replay()
    torch.cuda.synchronize()
    del y
    torch.cuda.empty_cache()
    assert in_bytes() == (before + STATES + WORKSPACE, 158 * MIB)
    del graph
    assert in_bytes() == (before, 158 * MIB)
    torch.cuda.empty_cache()
    assert in_bytes() == (before, (20 + 32 + 20) * MIB)


def test_graphs_that_share_a_pool(t4: VirtualGPU) -> None:
    x = torch.ones(4 * MIB, device="cuda")
    reserved = []
    for shared in (False, True):
        first, a = capture(lambda: x + 1)
        del a
        second, b = capture(lambda: x + 1, pool=first.pool() if shared else None)
        reserved.append(torch.cuda.memory_reserved())
        del first, second, b
        torch.cuda.empty_cache()
    # x, states, and a result of 16 MiB in each pool.
    assert reserved == [(16 + 2 + 2 * 16) * MIB, (16 + 2 + 16) * MIB]


def test_a_module_that_is_captured(t4: VirtualGPU) -> None:
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 64)).cuda()
    x = torch.randn(128, 512, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    allocated_bytes = torch.cuda.memory_allocated()
    if torch.__version__ < (2, 14):  # whose Python code is another
        assert (allocated_bytes, torch.cuda.memory_reserved()) == (44_125_184, 92_274_688)
    for _ in range(2):
        graphed(torch.randn(128, 512, device="cuda", requires_grad=True)).sum().backward()
        model.zero_grad()
    assert torch.cuda.memory_allocated() == allocated_bytes  # replays allocate nothing
    assert pools() == [(0, 0), (0, 1)]


def test_a_training_step_that_is_captured(t4: VirtualGPU) -> None:
    model = nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 1024, device="cuda")

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    optimizer.zero_grad(set_to_none=True)
    before = torch.cuda.memory_allocated()
    graph, _ = capture(step)
    gradients = 4 * (1024 * 1024 + 1024)
    # The forward and the backward pass have threads, and so handles and workspaces, of their own.
    assert torch.cuda.memory_allocated() - before == gradients + STATES + 2 * WORKSPACE
    after = torch.cuda.memory_stats()
    for _ in range(3):
        graph.replay()
    assert torch.cuda.memory_stats() == after


def test_a_stream_that_waits_takes_part_in_the_capture(t4: VirtualGPU) -> None:
    x, side = torch.ones(MIB, device="cuda"), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with torch.cuda.stream(side):
            assert not torch.cuda.is_current_stream_capturing()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            assert torch.cuda.is_current_stream_capturing()
            y = x + 1
        torch.cuda.current_stream().wait_stream(side)
    assert not side.is_capturing()
    (segment,) = (s for s in torch.cuda.memory_snapshot(graph.pool()) if s["active_size"])
    assert segment["stream"] == side.stream_id
    del y


def test_generators_of_a_capture(t4: VirtualGPU) -> None:
    torch.cuda.manual_seed(1)  # whatever seed another test has left
    own = torch.Generator("cuda")
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(own)
    with torch.cuda.graph(graph):
        torch.rand(3, device="cuda", generator=own)
        with pytest.raises(RuntimeError, match="only if new seed is the same"):
            torch.cuda.manual_seed(3)
        with pytest.raises(RuntimeError, match="Cannot call CUDAGeneratorImpl::seed during"):
            torch.cuda.seed()
    assert torch.cuda.memory_allocated() == 2 * STATES
    graph.reset()
    assert torch.cuda.memory_allocated() == 0
    other = torch.Generator("cuda")
    with pytest.raises(RuntimeError, match="not registered with the capturing graph"):
        capture(lambda: torch.rand(3, device="cuda", generator=other))


@pytest.mark.parametrize(
    ("wait", "error", "lost"),
    [
        (lambda x: x.item(), "operation not permitted when stream is capturing", True),
        (lambda x: bool(x > 0), "operation not permitted when stream is capturing", True),
        (lambda x: x.nonzero(), "operation not permitted when stream is capturing", True),
        (lambda x: torch.cuda.synchronize(), "operation not permitted", True),
        (lambda x: torch.cuda.current_stream().synchronize(), "operation not permitted", True),
        (lambda x: torch.cuda.current_stream().record_event().query(), "not permitted", True),
        (lambda x: x.to(torch.empty(1).pin_memory(), copy=True), "unless the CPU tensor", False),
        (lambda x: x.cpu(), "unless the CPU tensor is pinned", False),
        (lambda x: x[None].tolist(), "unless the CPU tensor is pinned", False),
        (lambda x: torch.ones(3).cuda(), "unless the CPU tensor is pinned", False),
        (lambda x: torch.ones(3).pin_memory().cuda(), "operation not permitted", True),
    ],
)
def test_nothing_waits_for_a_capture(
    t4: VirtualGPU, wait: Callable[[torch.Tensor], object], error: str, lost: bool
) -> None:
    """PyTorch's own refusals leave the capture as it is; CUDA's are the end of it."""
    x = torch.ones((), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        x.add_(0)
        with pytest.raises(RuntimeError, match=error):
            wait(x)
        if not lost:
            graph.capture_end()
            return
        with pytest.raises(torch.AcceleratorError, match="due to a previous error during capture"):
            graph.capture_end()
    # Since PyTorch 2.14 its Python class instantiates the graph first.
    asked = "called before calling instantiate|without a preceding successful capture"
    with pytest.raises(RuntimeError, match=asked):
        graph.replay()
    x.fill_(1)
    assert x.item() == 1


def test_copies_that_need_not_wait_are_captured(t4: VirtualGPU) -> None:
    pinned = torch.ones(100).pin_memory()
    graph, y = capture(lambda: pinned.to("cuda", non_blocking=True))
    (segment,) = torch.cuda.memory_snapshot(graph.pool())
    assert segment["active_size"] == 512
    capture(lambda: y.to("cpu", non_blocking=True))


def test_what_is_captured_has_no_known_value(t4: VirtualGPU) -> None:
    """It is computed when the graph is replayed, with what its inputs are then."""
    static = torch.tensor([1, 2, 3]).cuda()
    graph, doubled = capture(lambda: static * 2)
    static.copy_(torch.tensor([4, 5, 6]))
    graph.replay()
    doubled.tolist()
    assert [what for what, _ in t4.values.reads] == ["tolist()"]
    assert static.tolist() == [4, 5, 6]
    with VirtualGPU("T4", values=True), pytest.raises(UnsupportedOnVirtualGPU, match="values=True"):
        capture(lambda: torch.ones(3, device="cuda"))


def test_a_pool_is_used_inside_of_the_with_statement(t4: VirtualGPU) -> None:
    pool = torch.cuda.MemPool()
    assert (pool.id, pool.use_count()) == ((0, 1), 1)
    with torch.cuda.use_mem_pool(pool):
        assert pool.use_count() == 2
        x = torch.ones(1000, 1000, device="cuda", requires_grad=True)
        # Of the backward pass, which has a thread of its own, nothing is in the pool.
        (x * 2).sum().backward()
    (segment,) = (each for each in pool.snapshot() if each["active_size"])
    assert segment["active_size"] == 4_000_256
    assert x.grad is not None
    reserved = torch.cuda.memory_reserved()
    del x, segment
    torch.cuda.empty_cache()
    assert pools() == [(0, 1)]
    freed = torch.cuda.memory_reserved()
    assert freed < reserved
    del pool
    assert torch.cuda.memory_reserved() == 0


def test_stream_reuse_in_captures_is_refused() -> None:
    settings = "graph_capture_record_stream_reuse:True"
    with (
        VirtualGPU("T4", alloc_conf=settings),
        pytest.raises(UnsupportedOnVirtualGPU, match="graph_capture_record_stream_reuse"),
    ):
        capture(lambda: torch.ones(3, device="cuda"))


def test_a_graph_outlives_nothing_of_the_next_gpu() -> None:
    before = torch.cuda.CUDAGraph, torch.cuda.MemPool
    for _ in range(2):
        with VirtualGPU("T4"):
            graph, _ = capture(lambda: torch.ones(3, device="cuda"))
            assert graph.pool() == (1, 0)
            assert isinstance(graph, torch.cuda.CUDAGraph)
    assert (torch.cuda.CUDAGraph, torch.cuda.MemPool) == before
