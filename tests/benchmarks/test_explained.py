"""What docs/accuracy.md says of explanations."""

from __future__ import annotations

import json
from pathlib import Path

import benchmarks.explained
from benchmarks.explained.__main__ import advised, tried
from benchmarks.explained.table import RESULTS_FILE, markdown

PROGRAMS = Path(benchmarks.explained.__file__).parent


def test_a_row_is_what_the_program_gives_today() -> None:
    row = tried(PROGRAMS / "program_mlp_adam.py", "portable")
    assert row.is_replayed
    share = f"{row.right_bytes / row.peak_bytes:.1%}"
    assert f"| mlp adam | {row.peak_bytes / 2**20:,.1f} | {share} |" in markdown()


def test_a_promise_is_what_the_program_gives_today() -> None:
    change = ("torch.no_grad()", ("evaluation", "no_grad"))
    assert advised(*change, "portable")._asdict() in json.loads(RESULTS_FILE.read_text())["advice"]
