"""`vramlab plan --simulate --engine native`: the plan's steps in a process on the native engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from vramlab import native
from vramlab.cli import main
from vramlab.native.choice import Choice
from vramlab.native.setup import installed_release
from vramlab.planner import Simulation, simulation
from vramlab.planner.events import REMAINDERS
from vramlab.planner.simulation import INSIDE

TINY = ("--layers", "1", "--width", "64", "--heads", "4", "--vocabulary", "512")
FEW = ("--batch", "1", "--sequence", "64", "--attention", "eager")
MEASURED = Simulation(
    0, {"parameters": 100, REMAINDERS: 50}, 150, 2**21, native_torch="2.13.0+cu130"
)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is started on the native engine, which answers `MEASURED`."""
    seen: list[list[str]] = []

    def run_command(choice: Choice, words: Sequence[str], *_: Any, **__: Any) -> int:
        seen.append(list(words))
        Path(words[-1]).write_text(json.dumps(asdict(MEASURED)))
        return 0

    monkeypatch.setattr(simulation, "run_command", run_command)
    monkeypatch.setattr("vramlab.commands.plan.choose", _only_one_rank)
    return seen


def _only_one_rank(engine: str, *, portable_only: str = "") -> Choice:
    assert engine == "auto"
    return Choice(native=False) if portable_only else Choice(True, build=native.find)  # type: ignore[arg-type]


def test_the_process_makes_the_plan_from_the_same_words(
    started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", *TINY, *FEW, "--simulate", "--engine", "auto"]
    assert main(words) == 0
    assert started[0][:-1] == [*words, INSIDE, "0"]
    assert "Simulated on the native engine: PyTorch 2.13.0+cu130." in capsys.readouterr().out


def test_both_engines_hold_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """One rank of four, alone: FSDP's shards, collectives and streams as well."""
    try:
        native.find(installed_release())
    except native.NativeEngineError as error:
        pytest.skip(str(error))
    found = []
    for engine in ("portable", "native"):
        words = [*TINY, *FEW[2:], "--batch", "4", "--data", "4", "--zero", "3", "--json"]
        assert main(["plan", *words, "--simulate", "--engine", engine]) == 0
        found.append(json.loads(capsys.readouterr().out)["simulation"])
    assert [each.pop("engine") for each in found] == ["portable", "native"]
    for numbers in found:
        del numbers["bytes_by_category"]  # FSDP's gathered parameters are called one or the other
    assert found[0] == found[1]
