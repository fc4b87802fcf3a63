"""torchvision's usual wheel loads beside a CPU PyTorch, though its C++ library does not.

The package here is a small one of the same build: it finds no ops, and registers for them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from markdown_blocks import environment
from warm_python import warm_python

pytestmark = pytest.mark.long

EXTENSION = """\
def _has_ops():
    return False
"""
REGISTRATIONS = """\
import torch
import torchvision.extension
@torch.library.register_fake("torchvision::nms")
def nms(dets, scores, iou_threshold):
    raise NotImplementedError("the number kept depends on values")
if torchvision.extension._has_ops():
    library = torch.library.Library("torchvision", "IMPL", "Meta")
    library.impl(
        "roi_align", lambda input, rois, *_: input.new_empty((rois.size(0), input.size(1), 7, 7))
    )
"""
PROGRAM = """\
import torch, torchvision
assert torch.ops.torchvision._cuda_version() == -1
boxes, scores = torch.ones(3, 4, device="cuda"), torch.ones(3, device="cuda")
before = torch.cuda.memory_allocated()
kept = torch.ops.torchvision.nms(boxes, scores, 0.5)
assert kept.shape == (3,) and kept.dtype == torch.int64
# 3 * 8 bytes, in blocks of 512
assert torch.cuda.memory_allocated() - before == 512
rois = torch.zeros(5, 5, device="cuda")
image = torch.ones(1, 16, 32, 32, device="cuda")
pooled = torch.ops.torchvision.roi_align(image, rois, 1.0, 7, 7, 2, False)
assert pooled.shape == (5, 16, 7, 7) and pooled.is_cuda
"""


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [warm_python(), "-m", "vramlab", "run", "--gpu", "T4", "train.py"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )


def make(folder: Path) -> Path:
    package = folder / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("from torchvision import extension, _meta_registrations\n")
    (package / "extension.py").write_text(EXTENSION)
    (package / "_meta_registrations.py").write_text(REGISTRATIONS)
    (folder / "train.py").write_text(PROGRAM)
    return package


def test_it_loads_and_its_ops_have_sizes(tmp_path: Path) -> None:
    (make(tmp_path) / "_autograd_registrations.py").touch()
    ran = run(tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "shape of nms() (as if all were chosen) once" in ran.stderr


def test_one_that_has_its_gradients_in_cpp_is_refused_with_what_to_install(tmp_path: Path) -> None:
    make(tmp_path)
    ran = run(tmp_path)
    assert ran.returncode == 1
    assert "operator torchvision::nms does not exist" in ran.stderr
    assert "The installed wheel of torchvision needs PyTorch's CUDA build" in ran.stderr


NET = """\
import torchvision
from torch import nn
def build():
    assert torchvision.extension._has_ops()
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))
"""


def test_a_plan_of_a_model_that_imports_it(tmp_path: Path) -> None:
    (make(tmp_path) / "_autograd_registrations.py").touch()
    (tmp_path / "net.py").write_text(NET)
    words = ["--input", "float32[B,3,8,8]", "--target", "int64[B]", "--loss", "cross_entropy"]
    ran = subprocess.run(
        [warm_python(), "-m", "vramlab", "plan", "net.py:build", *words],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert "It fits" in ran.stdout
