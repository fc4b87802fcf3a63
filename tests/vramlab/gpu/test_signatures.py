"""What functions take, in Python and in C++, and whether a call or a replacement fits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from vramlab.gpu.signatures import Stubs, is_called_as, of, stands_in, written


def test_python_is_asked_and_a_class_tells_nothing() -> None:
    assert str(of(torch.nn.Module._apply)) == "(self, fn, recurse=True)"
    assert of(torch.nn.Module) is None
    assert of(None) is None
    assert of(SimpleNamespace()) is None


def test_a_stub_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "__init__.pyi"
    file.write_text(
        "def first(device: _int) -> tuple[_int, _int]: ...\n"
        "def several(\n    size: _int,\n    state: dict[str, tuple[_int, _int]] | None = ...,\n"
        "    *,\n    quick: _bool = False,\n) -> None: ...\n"
        "class Inside:\n    def method(self) -> None: ...\n"
        "def second() -> str | None: ...\n"
    )
    stubs = Stubs(file)
    assert str(stubs.of("first")) == "(device)"
    assert str(stubs.of("several")) == "(size, state=None, *, quick=None)"
    assert str(stubs.of("second")) == "()"
    assert stubs.of("method") is None
    assert Stubs(tmp_path / "none").of("first") is None


@pytest.mark.parametrize(
    ("ours", "theirs", "fits"),
    [
        ("", "", True),
        ("device", "device", True),
        ("device", "device, quick=None", True),  # a new option changes nothing
        ("device", "index", True),  # passed by position
        ("device", "device, quick", False),
        ("device, quick", "device", False),
        ("device, *, quick", "device, quick=None", True),
        ("device, *, quick", "device, fast=None", False),
        ("device", "*args, **kwargs", True),
    ],
)
def test_a_call_fits_what_accepts_its_arguments(ours: str, theirs: str, fits: bool) -> None:
    assert is_called_as(written(ours), written(theirs)) is fits


@pytest.mark.parametrize(
    ("ours", "theirs", "fits"),
    [
        ("", "", True),
        ("device", "index", True),
        ("device", "index, quick=None", False),  # PyTorch may pass it
        ("device, quick", "index, quick=None", False),  # PyTorch may leave it out
        ("device, quick=None", "index, quick=None", True),
        ("device, quick=None", "index", True),
        ("*, device", "device", True),
        ("device, *, quick", "index, *, quick", True),
        ("device, *, quick", "index, *, fast", False),
        ("*args, **kwargs", "a, b, *, c", True),
    ],
)
def test_a_replacement_fits_whose_arguments_it_accepts(ours: str, theirs: str, fits: bool) -> None:
    assert stands_in(written(ours), written(theirs)) is fits
