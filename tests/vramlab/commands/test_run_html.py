"""`vramlab run --html`: one file that opens anywhere, with the report's tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vramlab.cli import main

# Each of the 100 tensors of 1 MiB lives; the file's name and its text are HTML unless escaped.
PROGRAM = """
import torch
kept = [torch.zeros(2**20, dtype=torch.uint8, device='cuda') for _ in range(100)]  # <b>&
"""


def run(tmp_path: Path, program: str, *flags: str) -> tuple[int, str]:
    script = tmp_path / "train&.py"
    script.write_text(program)
    page = tmp_path / "report.html"
    status = main(["run", *flags, "--html", str(page), str(script)])
    return status, page.read_text(encoding="utf-8")


def test_a_page_loads_nothing_and_has_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, page = run(tmp_path, PROGRAM)
    assert status == 0
    assert "http" not in page
    assert not re.search(r"<(link|img|iframe)\b|\bsrc=", page)
    assert "<title>vramlab run: " in page
    assert "train&amp;.py" in page
    assert "fits: cuda:0 needs" in page
    assert '<td style="' in page
    # 100 MiB in 100 blocks, and all of them are inputs
    assert "cuda:0: 100.00 MiB allocated at the peak, 100% of it inputs" in page
    assert "# &lt;b&gt;&amp;" in page
    assert page.count('"events":100,') == 1
    assert "Lines that allocated most" in capsys.readouterr().err  # the report, as ever


def test_a_program_that_runs_out_of_memory_has_a_page(tmp_path: Path) -> None:
    status, page = run(tmp_path, PROGRAM + "torch.zeros(2**40, device='cuda')\n", "--gpu", "T4")
    assert status == 1
    assert "does NOT fit" in page
    assert "100.00 MiB allocated when memory ran out" in page
    assert f'"out_of_memory":[[100,{4 * 2**40}]]' in page


def test_a_program_without_a_gpu_has_a_page(tmp_path: Path) -> None:
    status, page = run(tmp_path, "import torch\n")
    assert status == 0
    assert "The program used no GPU" in page
    assert "vramlab-timeline" not in page


def test_a_folder_that_is_not_there_is_told_before_the_program_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("print('ran')")
    path = str(tmp_path / "nowhere" / "report.html")
    assert main(["run", "--html", path, str(tmp_path / "train.py")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"can't write {path!r}: its folder does not exist" in err
