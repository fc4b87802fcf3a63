"""Public scripts: how they are fetched, what their reports mean, and what the page says of them."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import strangers
from benchmarks.stranger_scripts import STRANGERS, Stranger
from benchmarks.strangers import ending, read_results, run_stranger
from vramlab.cli import parser
from vramlab.units import GIB


def report(**changes: Any) -> dict[str, Any]:
    device = {"context_bytes": GIB, "needed_bytes": 3 * GIB, "total_bytes": 16 * GIB}
    told = {"outcome": "fits", "error": None, "status": 0, "stopped_by": None, "devices": [device]}
    return {**told, **changes}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (report(), ("fits", "3.00 GiB of 16.00 GiB")),
        (report(outcome="at least"), ("at least", "3.00 GiB of 16.00 GiB")),
        (report(outcome="does not fit"), ("does not fit", "more than 16.00 GiB")),
        (report(outcome="cut short", error="ValueError: no\nway"), ("failed", "ValueError: no")),
        (
            report(
                outcome="cut short", error="UnsupportedOnVirtualGPU: no kernel of your own. Use ..."
            ),
            ("refused", "UnsupportedOnVirtualGPU: no kernel of your own. Use ..."),
        ),
        (
            report(outcome="cut short", stopped_by="--seconds"),
            ("stopped", "3.00 GiB until then, no step of its training yet"),
        ),
        (report(outcome="cut short", status=3), ("failed", "exit status 3")),
        (report(devices=[]), ("no GPU", "it put nothing on one")),
        (None, ("no report", "Killed")),
    ],
)
def test_what_became_of_a_script(told: dict[str, Any] | None, expected: tuple[str, str]) -> None:
    assert ending(told, "...\nKilled\n") == expected


def test_scripts_are_pinned_and_their_commands_are_understood() -> None:
    names = [each.name for each in STRANGERS]
    assert len(set(names)) == len(names)
    for each in STRANGERS:
        assert re.fullmatch("[0-9a-f]{40}", each.commit)
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", each.repository)
        assert parser().parse_args(["run", *shlex.split(each.command)]).run


def test_every_script_was_tried_as_it_is_listed() -> None:
    listed = [(one.name, one.repository, one.commit, one.command) for one in STRANGERS]
    tried = [(one.name, one.repository, one.commit, one.command) for one in read_results()]
    assert tried == listed


def test_a_script_is_fetched_run_and_thrown_away(tmp_path: Path) -> None:
    repository = tmp_path / "someone+thing" / "repo"
    repository.mkdir(parents=True)
    program = "import torch\nx = torch.load('data.pt')\ny = torch.ones(4, device='cuda')\n"
    (repository / "train.py").write_text(program)
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "script"]):
        subprocess.run([*git, *words], check=True)
    answer = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    clone = tmp_path / "mirror" / "someone+thing" / "repo"
    subprocess.run(["git", "clone", "-q", "--bare", repository, clone], check=True)
    places: list[Path] = []

    def prepare(folder: Path) -> None:
        import torch

        places.append(folder)
        torch.save(torch.zeros(1), folder / "data.pt")

    stranger = Stranger(
        "thing", "someone/thing", answer.stdout.strip(), "--gpu T4 train.py", prepare=prepare
    )
    tried = run_stranger(stranger, tmp_path / "mirror")
    assert (tried.outcome, tried.engine) == ("fits", "portable")
    assert not places[0].exists()
    assert strangers.RESULTS_FILE.exists()
