"""The report of `vramlab run` names libraries alike, wherever the environment lies."""

from __future__ import annotations

import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest
import torch
from markdown_blocks import environment

import vramlab

pytestmark = pytest.mark.long

BLOCKS = """\
class Block:
    def __call__(self, x):
        return x * 2
"""
TRAIN = """\
import torch
from mine.data import batch
from torch_small.models.blocks import Block
y = Block()(batch())
"""
DATA = """\
import torch
def batch():
    return torch.ones(2**20, device="cuda")
"""


def install(folder: Path) -> Path:
    """Make an environment without pip: this one's packages, and one more. Return its python."""
    venv.create(folder, symlinks=True, with_pip=False)
    base = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", vars=base))
    (packages / "torch_small" / "models").mkdir(parents=True)
    (packages / "torch_small" / "models" / "blocks.py").write_text(BLOCKS)
    elsewhere = (
        Path(torch.__file__).parents[1],
        Path(vramlab.__file__).parents[1],
        sysconfig.get_path("purelib"),  # what torch needs may not be where it is
    )
    (packages / "elsewhere.pth").write_text("".join(f"{path}\n" for path in elsewhere))
    return folder / "bin" / "python"


@pytest.mark.parametrize("where", [".venv", "../environment"])
def test_libraries_are_named_from_themselves_on(where: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src" / "mine").mkdir(parents=True)
    (project / "train.py").write_text(TRAIN)
    (project / "src" / "mine" / "data.py").write_text(DATA)
    python = install((project / where).resolve())
    ran = subprocess.run(
        [python, "-m", "vramlab", "run", "train.py"],
        cwd=project,
        env=environment(PYTHONPATH=str(project / "src")),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stderr.partition("Lines that allocated most")[2].splitlines()[1:]
    # 2**20 numbers of 4 bytes each: 4 MiB in one block
    assert [line.split()[:4] for line in lines if line.strip()] == [
        ["src/mine/data.py:3", "batch", "4.00", "1"],
        ["return", "torch.ones(2**20,", 'device="cuda")'],
        ["torch_small/models/blocks.py:3", "Block.__call__", "4.00", "1"],
        ["return", "x", "*", "2"],
        ["called", "from", "train.py:4", "<module>"],
    ]
