"""Tries wheels that were installed where there is nothing but torch.

python -I .ci/try_wheel.py             the engine alone, which brings no notebook
python -I .ci/try_wheel.py --course    with the course
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch

import vramlab

COMMAND = Path(sys.executable).with_name("vramlab")
DATA = ("gpus.toml", "py.typed")
COURSE_DATA = (
    "vramlab_course/experiments/published.json",
    "vramlab_course/translations/zh/lessons/01_cuda_context.po",
    "vramlab_course/material/start.ipynb",
    "vramlab_course/material/lessons/01_cuda_context.ipynb",
    "vramlab_course/material/exercises/01_cuda_context/01_cuda_context.ipynb",
    "vramlab_classroom/reports/class_page.html.j2",
)

PROGRAM = """\
import torch

layer = torch.nn.Linear(1024, 1024, bias=False, device="cuda")
layer(torch.ones(64, 1024, device="cuda")).sum().backward()
"""


def output_of(*words: str | Path) -> str:
    """Return what `vramlab` prints for these words, on either stream."""
    ran = subprocess.run(
        [COMMAND, *words], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return ran.stdout


def main() -> None:
    """Fail at the first thing that is not as it should be."""
    package = Path(vramlab.__file__).parent
    checkout = Path(__file__).resolve().parents[1]
    assert package.parent != checkout, f"this is the checkout, not the wheel: {package}"
    assert [name for name in DATA if not (package / name).is_file()] == []
    has_course = "--course" in sys.argv
    there = [name for name in COURSE_DATA if (package.parent / name).is_file()]
    assert there == (list(COURSE_DATA) if has_course else [])

    assert version("vramlab") == vramlab.__version__
    assert output_of("--version").startswith(
        f"vramlab {vramlab.__version__}\nPyTorch {version('torch')}"
    )
    assert output_of("gpus", "T4").startswith("T4: ")

    with vramlab.VirtualGPU("T4"):
        ones = torch.ones(1000, device="cuda")
        assert torch.cuda.memory_allocated() == 4096  # 4000 bytes in blocks of 512
        del ones
        assert torch.cuda.memory_allocated() == 0

    with tempfile.TemporaryDirectory() as folder:
        if has_course:
            assert "The course is in" in output_of("lab", "--no-open", folder)
            assert (Path(folder) / "lessons" / "01_cuda_context.ipynb").is_file()
        script = Path(folder) / "train.py"
        script.write_text(PROGRAM)
        report = output_of("run", "--gpu", "T4", script)
    assert "\nfits: cuda:0 needs " in report
    assert "4,194,304" in report  # the weight: 1024 * 1024 * 4 bytes
    print(f"vramlab {vramlab.__version__} works with torch {torch.__version__} alone")


if __name__ == "__main__":
    main()
