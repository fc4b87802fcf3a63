"""Which source decides cuDNN's workspace, in which order, and what is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vramlab import catalogue
from vramlab.cudnn import table, workspaces
from vramlab.cudnn.problems import Convolution
from vramlab.cudnn.workspaces import SETTING, Source, Workspaces

IN_TABLE = Convolution(
    "forward", "f32", (1, 8, 4, 4), (8, 8, 3, 3), (1, 8, 4, 4), (1, 1), (1, 1), (1, 1)
)
BEYOND = replace(IN_TABLE, operation="input")
H200 = catalogue.find("H200")


class FakeLibrary:
    def __init__(self) -> None:
        self.asked: list[Sequence[Any]] = []

    def ask(self, questions: Sequence[Sequence[Any]]) -> list[list[int] | str]:
        self.asked += questions
        return [[1000, 10] for _ in questions]


@pytest.fixture
def cudnn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    """A table of one answer, and a library that answers 1,000 and 10 to everything."""
    table.add_problems([IN_TABLE], tmp_path)
    table.write_answers(92000, (9, 0), [[131, 200]], tmp_path)
    real = table.answers
    monkeypatch.setattr(table, "answers", lambda version, of: real(version, of, tmp_path))
    fake = FakeLibrary()
    monkeypatch.setattr(workspaces, "_library", lambda version, gpu: fake)
    monkeypatch.delenv(SETTING)
    return fake


def test_the_table_comes_before_the_library(cudnn: FakeLibrary) -> None:
    answers = Workspaces(H200, (2, 13))
    assert answers(IN_TABLE) == (131, 200)
    assert cudnn.asked == []
    assert [answers(BEYOND), answers(BEYOND)] == [[1000, 10]] * 2
    assert cudnn.asked == [BEYOND.as_question()]  # once
    assert answers.sources == {Source.TABLE: 1, Source.LIBRARY: 1}
    assert answers.origins_text() == (
        "What cuDNN 9.20.0 takes for 2 different convolutions: 1 is from vramlab's table of its "
        "answers; 1 is from its own library"
    )


def test_the_setting_leaves_the_library_out(
    cudnn: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "table")
    answers = Workspaces(H200, (2, 13))
    assert [answers(IN_TABLE), answers(BEYOND)] == [(131, 200), None]
    assert answers.unknown_count == 1
    assert cudnn.asked == []
    assert "1 is not known and not counted (`vramlab native setup --cudnn`" in (
        answers.origins_text() or ""
    )


def test_the_setting_leaves_everything_out(
    cudnn: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "off")
    answers = Workspaces(H200, (2, 13))
    assert [answers(IN_TABLE), answers(BEYOND)] == [None, None]
    assert cudnn.asked == []


def test_for_an_older_pytorch_a_later_cudnn_is_an_assumption(
    cudnn: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = {92000: cudnn}
    monkeypatch.setattr(workspaces, "_library", lambda version, gpu: later.get(version))
    answers = Workspaces(H200, (1, 13))
    assert [answers(IN_TABLE), answers(BEYOND)] == [(131, 200), [1000, 10]]
    assert answers.sources == {Source.ASSUMED: 2}
    assert f"2 are from {Source.ASSUMED.value}" in (answers.origins_text() or "")


def test_of_a_gpu_that_this_cudnn_refuses_nothing_is_said(cudnn: FakeLibrary) -> None:
    """V100: capability 7.0."""
    assert Workspaces(catalogue.find("V100-16GB"), (2, 13))(IN_TABLE) is None
    assert cudnn.asked == []


def test_a_benchmark_is_told_and_counts_no_convolution_twice(cudnn: FakeLibrary) -> None:
    answers = Workspaces(H200, (2, 13))
    for convolution in (IN_TABLE, BEYOND):
        answers(convolution)
        answers(convolution, benchmark=True)
    assert "torch.backends.cudnn.benchmark times them" in (answers.origins_text() or "")
    assert answers.sources == {Source.TABLE: 1, Source.LIBRARY: 1}


def test_a_program_without_convolutions_is_told_nothing(cudnn: FakeLibrary) -> None:
    assert Workspaces(H200, (2, 13)).origins_text() is None


def test_gpus_of_one_capability_are_described_alike() -> None:
    """Their first plans are the same; what a benchmark times may differ."""
    h100 = catalogue.find("H100")
    describe = workspaces._description
    assert describe(h100, benchmark=False) == describe(H200, benchmark=False)
    assert describe(h100, benchmark=True) != describe(H200, benchmark=True)
    assert describe(catalogue.find("T4"), benchmark=False) != describe(H200, benchmark=False)
