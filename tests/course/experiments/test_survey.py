"""The published figures at a glance."""

from __future__ import annotations

import pytest

from vramlab_course.experiments import figures, registry
from vramlab_course.experiments.survey import survey


def test_markdown_is_one_table_with_remarks_below() -> None:
    lines = survey(["fragmentation-extreme", "optimizer-step-peak"]).markdown().splitlines()
    assert lines[0].startswith("| figure | document | published |")
    assert lines[2] == "| adamw-step-extra: loop | 003 | 2 x | 2 | 2 | equal | equal |"
    assert lines[5] == "| fragmentation-extreme | 003 | 0.30 fraction | 0.3 | 0.3 | equal | equal |"
    assert lines[7].startswith("- adamw-step-extra foreach: -1 x: the square roots")
    assert lines[-1] == "2 equal, 2 explained"


def test_figures_without_an_experiment_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "names", lambda: ("cuda-context",))
    result = survey()
    verdicts = {line.figure: line.verdict for line in result.lines}
    assert verdicts["tiny-allocated"] == "equal"
    assert verdicts["three-linear-peak"] == "not measured yet"
    assert len(verdicts) == len(figures())
    published = {line.figure: line.published for line in result.lines}
    assert published["t4-params"] == "100000000 parameters\n150000000 parameters"
    assert published["three-linear-peak"] == "360.2744140625 MiB"
    assert published["tiny-reserved"] == "2097152 B"
