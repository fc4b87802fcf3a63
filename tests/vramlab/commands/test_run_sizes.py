"""`vramlab run` with several GPUs, and with --largest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.cli import main, parser
from vramlab.sizing import runs
from vramlab.sizing.runs import RunOutcome
from vramlab.units import GIB, MIB

pytestmark = pytest.mark.long

PROGRAM = """
import sys, torch
x = torch.empty(int(sys.argv[1]) << 30, dtype=torch.uint8, device="cuda")
print("the program's own words")
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return str(path)


def test_several_gpus_are_compared_by_one_run(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "gpus.json"
    gpus = "V100-16GB,V100-32GB"
    assert main(["run", "--gpu", gpus, "--json", str(told), program, "20"]) == 0
    out, err = capsys.readouterr()
    assert err == "vramlab: 1 of 2, V100-32GB\n"
    assert "the program's own words" not in out
    assert "Smallest GPU on which the program fits: V100-32GB, 31.75 GiB." in out
    small, large = json.loads(told.read_text())["gpus"]
    assert (small["gpu"], small["fits"], small["same_as"]) == ("V100-16GB", False, "V100-32GB")
    context_bytes = catalogue.find("V100-32GB").context_bytes
    assert (large["gpu"], large["needed_bytes"]) == ("V100-32GB", 20 * GIB + context_bytes)
    assert "total_bytes" not in large["gpu_facts"]


def test_gpus_can_have_figures_of_the_callers_own(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gpus.json"
    gpus = "T4,H100,memory=60GiB,H100-1g.10gb"
    assert main(["run", "--gpu", gpus, "--json", str(path), program, "5"]) == 0
    told = json.loads(path.read_text())
    assert [each["gpu"] for each in told["gpus"]] == ["H100-1g.10gb", "T4", "H100,memory=60GiB"]
    assert told["smallest"] == "H100-1g.10gb"
    assert "the program fits: H100-1g.10gb, 9.75 GiB." in capsys.readouterr().out


def test_the_largest_value_is_found(
    program: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run_once(
        options: Sequence[str], gpu: GPUModel, words: Sequence[str], run_command: object = None
    ) -> RunOutcome:
        assert list(options)[-2:] == ["--steps", "2"]
        assert "--gpu" not in options
        needed_bytes = GIB + int(words[-1]) * 100 * MIB
        fits = needed_bytes <= gpu.total_bytes
        return RunOutcome(gpu.name, fits, needed_bytes, needed_bytes, 0, None)

    monkeypatch.setattr(runs, "run_once", run_once)
    told = tmp_path / "largest.json"
    words = ["--steps", "2", "--json", str(told), "--largest", "--batch-size", program]
    assert main(["run", "--gpu", "T4", *words]) == 0
    largest = (catalogue.find("T4").total_bytes - GIB) // (100 * MIB)
    assert f"Largest value that fits: --batch-size {largest}; " in capsys.readouterr().out
    assert json.loads(told.read_text())["largest"] == largest


@pytest.mark.parametrize(
    ("words", "largest", "program"),
    [
        (["--largest", "--batch-size", "train.py"], "--batch-size", ["train.py"]),
        (["--largest=--batch-size", "train.py"], "--batch-size", ["train.py"]),
        (["--largest", "data.batch", "train.py"], "data.batch", ["train.py"]),
        (["train.py", "--largest", "--fast"], None, ["train.py", "--largest", "--fast"]),
    ],
)
def test_an_option_of_the_program_is_named(
    words: list[str], largest: str | None, program: list[str]
) -> None:
    arguments = parser().parse_args(["run", "--gpu", "T4", *words])
    assert (arguments.largest, arguments.program) == (largest, program)


def test_a_program_that_uses_no_gpu_says_nothing_about_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nothing.py"
    path.write_text("", encoding="utf-8")
    assert main(["run", "--gpu", "T4,L4", str(path)]) == 2
    assert "used no GPU itself: it put nothing on a cuda device" in capsys.readouterr().err


def test_a_program_that_cannot_start_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import no_such_package\n")
    assert main(["run", "--gpu", "T4,L4", str(script)]) == 2
    err = capsys.readouterr().err
    assert "train.py failed before it used a GPU: ModuleNotFoundError: No module named" in err
    assert "Install no_such_package there" in err
