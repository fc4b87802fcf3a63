"""The documents' training loops, run as they are printed: which go wrong, and how."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vramlab import VirtualGPU
from vramlab_course.lessons.l13_gradient_accumulation.document_loops import (
    LOOPS,
    run_loop,
    small_data,
    small_model,
)


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with VirtualGPU("T4", values=True):
        yield


def with_names_mended(loop: str) -> str:
    return LOOPS[loop].replace("imgaes", "images").replace("% accumulation)", "% 4)")


@pytest.mark.parametrize("loop", ["001", "003"])
def test_as_printed_two_loops_end_at_a_name(loop: str) -> None:
    run = run_loop(LOOPS[loop], small_data(4))
    assert run.error == "NameError: name 'imgaes' is not defined"
    assert run.weights == ()
    again = run_loop(LOOPS[loop].replace("imgaes", "images"), small_data(4))
    assert again.error == "NameError: name 'accumulation' is not defined"


def test_001_goes_backward_through_a_graph_twice() -> None:
    run = run_loop(with_names_mended("001"), small_data(4))
    assert run.error == "RuntimeError: Trying to backward through the graph a second time"
    assert run.weights == ()
    assert run.left_over


def test_001_with_graphs_retained_counts_early_batches_more_often() -> None:
    source = with_names_mended("001").replace("backward()", "backward(retain_graph=True)")
    run = run_loop(source, small_data(4))
    # batch 1 goes backward four times, each time with 1/4
    assert run.weights == ((1.0, 0.75, 0.5, 0.25),)


def test_003_adds_the_loss_to_itself() -> None:
    run = run_loop(with_names_mended("003"), small_data(4))
    assert run.weights == ((1.25, 1.25, 1.25, 1.25),)  # 1 + 1/4 each, instead of 1/4


def test_003_leaks_the_last_window_into_the_next_epoch() -> None:
    data, model = small_data(6), small_model()
    first = run_loop(with_names_mended("003"), data, model)
    second = run_loop(with_names_mended("003"), data, model)
    assert first.weights == ((1.25, 1.25, 1.25, 1.25, 0.0, 0.0),)
    assert first.left_over
    assert second.weights == ((1.25,) * 6,)  # batches 5 and 6 are those of the first epoch


def test_002_divides_an_incomplete_window_by_too_much() -> None:
    run = run_loop(LOOPS["002"], small_data(6))
    assert run.error is None
    assert run.weights == ((0.25,) * 4 + (0.0,) * 2, (0.0,) * 4 + (0.25,) * 2)
    assert not run.left_over


def test_002_before_trains_on_the_last_batch_only() -> None:
    assert run_loop(LOOPS["002 before"], small_data(4)).weights == ((0.0, 0.0, 0.0, 1.0),)
