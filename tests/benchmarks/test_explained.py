"""What docs/accuracy.md says of explanations."""

from __future__ import annotations

from pathlib import Path

import benchmarks.explained
from benchmarks.explained.__main__ import tried
from benchmarks.explained.table import markdown

PROGRAMS = Path(benchmarks.explained.__file__).parent


def test_a_row_is_what_the_program_gives_today() -> None:
    row = tried(PROGRAMS / "program_mlp_adam.py", "portable")
    assert row.is_replayed
    share = f"{row.right_bytes / row.peak_bytes:.1%}"
    assert f"| mlp adam | {row.peak_bytes / 2**20:,.1f} | {share} |" in markdown()
