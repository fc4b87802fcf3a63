"""A wheel that is made for CUDA is named, with what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from vramlab.cli import main
from vramlab.report.running.cuda_wheels import wheel_hint


def test_the_usual_torchvision_beside_a_cpu_pytorch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    # What `import torchvision` does where its library does not load.
    program.write_text(
        "import torch\n"
        "torch.library.register_fake('torchvision::nms')(lambda boxes, scores, most: None)\n"
    )
    assert main(["run", "--gpu", "T4", str(program)]) == 1
    told = capsys.readouterr().err
    assert "The program failed: RuntimeError: operator torchvision::nms does not exist\n" in told
    assert "The installed wheel of torchvision needs PyTorch's CUDA build" in told


def test_a_library_of_cuda_that_is_not_there() -> None:
    error = RuntimeError("cannot import")
    error.__cause__ = OSError("libcudart.so.13: cannot open shared object file: No such file")
    hint = wheel_hint(error, "2.13.0+cpu")
    assert hint is not None
    assert hint.endswith("https://download.pytorch.org/whl/cpu torch==2.13.0 PACKAGE")
