"""Ranks that share nothing, and what a collective sends."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from vramlab_classroom.judge.task import NotFixed
from vramlab_classroom.judge.vocabulary import OWN_MODULE
from vramlab_course.tasks.rank_network import CAN_FORK, Link, _Hub, in_processes, in_threads

Runner = Callable[..., Any]

both = pytest.mark.parametrize("run", [in_processes, in_threads])


@both
def test_a_collective_sends_what_its_tensor_holds_when_it_is_issued(run: Runner) -> None:
    def rank(link: Link) -> list[float]:
        tensor = torch.full((2,), float(link.rank))
        link.post("all-reduce", tensor)
        tensor += 10
        link.post("all-reduce", tensor)
        return [float(torch.stack(link.receive()).sum()) for _ in range(2)]

    results, sent = run(3, rank)
    # 2 x (0 + 1 + 2), and 10 more of each of the 6 numbers
    assert results == 3 * [[6, 66]]
    assert [[message.size_bytes for message in each] for each in sent] == 3 * [[8, 8]]


@both
def test_what_is_sent_can_have_any_dtype_and_shape(run: Runner) -> None:
    tensors = [
        torch.ones(2, 3, dtype=torch.bfloat16),
        torch.tensor(True),
        torch.empty(0, 4),
        torch.arange(6.0).view(2, 3).T,
    ]

    def rank(link: Link) -> list[torch.Tensor]:
        for tensor in tensors:
            link.post("all-gather", tensor)
        return [link.receive()[0] for _ in tensors]

    for found in run(2, rank)[0]:
        for one, tensor in zip(found, tensors, strict=True):
            assert one.dtype == tensor.dtype
            assert torch.equal(one, tensor)


def test_processes_share_no_state() -> None:
    kept: list[int] = []

    def rank(link: Link) -> list[int]:
        kept.append(link.rank)
        link.post("all-gather", torch.ones(1))
        link.receive()  # all have come as far as this
        return kept

    assert in_processes(3, rank)[0] == [[0], [1], [2]]
    assert kept == []


@both
def test_ranks_have_to_issue_the_same(run: Runner) -> None:
    def rank(link: Link) -> None:
        link.post("all-gather", torch.ones(1 + link.rank))
        link.receive()

    with pytest.raises(NotFixed, match=r"Collective 1: rank 0 issues all-gather of float32 \[1\]"):
        run(2, rank)


@both
def test_a_rank_that_waits_for_others_forever_is_told(run: Runner) -> None:
    def rank(link: Link) -> None:
        if link.rank == 0:
            link.post("all-gather", torch.ones(1))
            link.receive()

    with pytest.raises(NotFixed, match="rank 0 issues 1, rank 1 issues 0"):
        run(2, rank)


@both
def test_what_one_rank_has_raised_is_raised_though_others_wait(run: Runner) -> None:
    def rank(link: Link) -> None:
        if link.rank == 1:
            raise NotFixed("Rank 1 has no gradient.")
        link.post("all-gather", torch.ones(1))
        link.receive()

    with pytest.raises(NotFixed, match=r"^Rank 1 has no gradient\.$"):
        run(2, rank)


@both
def test_an_error_of_an_answer_keeps_its_name_and_its_line(run: Runner) -> None:
    source = "\n\nclass Odd(ValueError): pass\ndef f():\n    raise Odd('three')\n"
    namespace: dict[str, Any] = {"__name__": OWN_MODULE}
    exec(compile(source, OWN_MODULE, "exec"), namespace)
    with pytest.raises(Exception, match=r"^three$") as raised:
        run(2, lambda link: namespace["f"]())
    assert type(raised.value).__name__ == "Odd"
    trace = raised.tb
    while trace.tb_next is not None:
        trace = trace.tb_next
    assert (trace.tb_frame.f_code.co_filename, trace.tb_lineno) == (OWN_MODULE, 5)


def test_a_process_that_ends_is_told() -> None:
    with pytest.raises(NotFixed, match="The process of rank 0 ended with status 3"):
        in_processes(2, lambda link: os._exit(3))
    with pytest.raises(NotFixed, match="The process of rank 1 ended with SIGABRT"):
        in_processes(2, lambda link: os.abort() if link.rank else None)


class _RunsSomething:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.getcwd, ()


def test_a_rank_that_dies_while_it_waits_leaves_the_others_stuck() -> None:
    hub = _Hub(2)
    hub.waiting.add(0)
    hub.end(0)
    assert not hub.is_stuck  # rank 1 still runs
    hub.waiting.add(1)
    assert hub.is_stuck


@pytest.mark.skipif(not CAN_FORK, reason="ranks are processes where there are forks")
def test_nothing_of_a_ranks_runs_where_ranks_are_compared() -> None:
    """Its results are data: what would call a function when it is read is refused."""
    with pytest.raises(NotFixed, match="rank 0"):
        in_processes(1, lambda link: _RunsSomething())
    ((numbers, dtype),), _ = in_processes(1, lambda link: (torch.arange(3), torch.float16))
    assert numbers.tolist() == [0, 1, 2]
    assert dtype is torch.float16
