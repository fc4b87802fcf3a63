"""What runs as the learner's own script, and what its cell says when it cannot run."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from vramlab.units import MIB
from vramlab_course.experiments.your_script import run_bundled, run_script
from vramlab_course.plots import describe_your_script
from vramlab_course.programs import minigpt
from vramlab_course.widgets import your_script

TRAINS = """
import torch
layer = torch.nn.Linear(1024, 1024, bias=False).cuda()
layer(torch.ones(1024, 1024).cuda()).sum().backward()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(platformdirs, "user_data_path", lambda *_, **__: tmp_path / "data")
    return tmp_path


def test_a_script_that_is_named_once_runs_again_in_later_lessons(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "own").mkdir()
    (folder / "own" / "train.py").write_text(TRAINS)
    first = your_script("05", "own/train.py --lr 1", gpu="T4")
    assert first.alt.startswith("Your script: ")
    shown = capsys.readouterr().out
    assert shown.startswith("$ vramlab run --gpu T4 own/train.py --lr 1\nIt fits: it needs ")
    assert "train.py:4  layer(torch.ones(1024, 1024).cuda()).sum().backward()" in shown
    second = your_script("06")
    assert "05: train.py --lr 1 to 06: train.py --lr 1, each of 2" in second.alt
    again = your_script("06")  # a lesson has one bar
    assert again.alt == second.alt
    assert capsys.readouterr().out.count("$ vramlab run --gpu T4 own/train.py --lr 1") == 2


def test_the_peak_of_a_script_is_exact(folder: Path) -> None:
    (folder / "train.py").write_text(TRAINS)
    run = run_script("05", "train.py", gpu="RTX-3090")
    assert run.fits
    assert run.bytes_by_category["parameters"] == 4 * MIB  # 1024 x 1024 x 4 bytes


def test_the_bundled_program_changes_with_the_lessons() -> None:
    runs = run_bundled("11", gpu="RTX-3090")
    assert [run.lesson for run in runs] == ["05", "09", "10"]
    assert runs[-1].command.endswith("minigpt --fused-attention --batch-size 2")
    written, fused, two = (run.bytes_by_category for run in runs)
    # For 8 texts and 12 layers of 12 heads, 1024 x 1024 scores: the softmax's input and output in
    # float32 are saved, and nothing else depends on the square but the mask.
    assert written["activations"] - fused["activations"] > 12 * 8 * 12 * 1024 * 1024 * 4
    assert two["temporaries"] < fused["temporaries"]
    assert describe_your_script(runs).startswith("Your script: from ")


def test_the_bundled_program_ends_with_adapters_and_a_loss_in_pieces() -> None:
    runs = run_bundled("30", gpu="RTX-3090")
    assert [run.lesson for run in runs] == ["05", "24", "25"]
    _, adapted, pieces = (run.bytes_by_category for run in runs)
    # Two linear layers of attention in each of 12 layers, 768 to 2304 and 768 to 768, at rank 8.
    adapters = 12 * 8 * ((768 + 2304) + (768 + 768)) * 4
    assert adapters <= adapted["gradients"] < adapters + 64 * 1024  # each a block of 512 bytes
    # 2 texts of 1024 tokens: 8 pieces of 256 rows instead of 2048, in bfloat16 and more.
    assert adapted["temporaries"] - pieces["temporaries"] > (2048 - 256) * 50304 * 2


def test_micro_batches_divide_the_batch(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        minigpt.main(["--batch-size", "8", "--accumulate", "3"])
    assert "--batch-size 8 is not divisible by --accumulate 3" in capsys.readouterr().err
