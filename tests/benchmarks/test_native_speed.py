"""The table of what a step costs on both engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import native_speed


def test_the_least_of_all_rounds_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {
        "bare meta": [0.5, 0.4],
        "virtual GPU": [0.2, 0.3],
        "MemTracker": [4.0],
        "native": [0.02, 0.01],
        "native, values kept": [0.03, 0.04],
        "native, reported": [0.025, 0.035],
    }
    file = tmp_path / "speed.json"
    file.write_text(
        json.dumps({"torch": "2.13.0", "cores": 2, "load": 3.4, "seconds": {"gpt2": seconds}})
    )
    monkeypatch.setattr(native_speed, "RESULTS_FILE", file)
    text = native_speed.markdown()
    times = "| 10 ms | 30 ms | 25 ms | 200 ms | 400 ms | 4,000 ms | 2.5 | 1 : 20 : 40 : 400 |"
    assert f"| GPT-2 small, 8 x 1024 tokens, AdamW {times}" in text
    assert "the least of 2 rounds in one run (of MemTracker the first); PyTorch 2.13.0" in text
