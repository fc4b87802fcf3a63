"""`vramlab experiments` and `vramlab figures`, run as the command line runs them."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from vramlab import progress
from vramlab.cli import main
from vramlab.measure.stages import observed_by
from vramlab.progress import Step
from vramlab_course import experiments
from vramlab_course.commands.experiments import ToldStages
from vramlab_course.experiments import Finding, Outcome, registry


def test_the_list_has_a_line_for_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiments"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["lesson", "experiment", "question"]
    assert tuple(line.split()[1] for line in lines) == experiments.names()


def test_run_prints_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiments", "run", "fragmentation-extreme"]) == 0
    printed = capsys.readouterr().out
    assert "NVIDIA A100-SXM4-40GB (virtual)" in printed
    assert "0.30 fraction" in printed


def test_the_line_of_progress_names_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 0.0))
    step = Step("running three-linear", io.StringIO())
    lines: list[str] = []

    class Reader:
        def stage_begins(self, name: str) -> None:
            lines.append(step.line())

        def stage_ended(self, measurement: object) -> None:
            lines.append(step.line())

    with observed_by(ToldStages(step)), observed_by(Reader()):
        experiments.run_as_published("three-linear")
    assert lines[:2] == [
        "running three-linear: parameters ... 0 s",
        "running three-linear ... 0 s",
    ]


def test_an_unknown_experiment_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiments", "run", "nothing"]) == 2
    assert "no experiment 'nothing'; there are: cuda-context" in capsys.readouterr().err


@pytest.mark.parametrize("measured", [512, 1024])
def test_figures_fail_on_an_unexplained_difference(
    measured: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = Finding("tiny-allocated", "512", "B", "001 §1.2, 003", measured)

    def found(name: str) -> Outcome:
        outcome = Outcome.from_json(published[name].to_json())
        return Outcome(name, {}, "2.13", outcome.result, (finding, *outcome.findings[1:]))

    published = {"cuda-context": experiments.run_as_published("cuda-context")}
    monkeypatch.setattr(registry, "names", lambda: ("cuda-context",))
    monkeypatch.setattr(registry, "run_as_published", found)
    assert main(["figures"]) == (0 if measured == 512 else 1)
    captured = capsys.readouterr()
    assert ("unexplained: tiny-allocated: published 512 B, measured 1024" in captured.err) == (
        measured == 1024
    )
    assert "tiny-allocated" in captured.out
