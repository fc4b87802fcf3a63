"""The PyTorch that is installed: too old, newer than what is known, or other than what is known."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import pytest
import torch

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU, attached, self_check, signatures, torch_internals
from vramlab.torch_versions import KNOWN_RELEASES, NEWEST, OLDEST, text

AFTER = f"{NEWEST[0]}.{NEWEST[1] + 1}.0"
BEFORE = f"{OLDEST[0]}.{OLDEST[1] - 1}.0+cpu"


@pytest.fixture(autouse=True)
def _not_yet_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "check", inspect.unwrap(self_check.check))
    monkeypatch.delenv(self_check.TOLD, raising=False)


def install(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Let PyTorch say that it is another version, which has the same names."""
    names = [each for each in torch_internals.internals() if torch_internals.is_expected(each)]
    monkeypatch.setattr(torch_internals, "internals", lambda: iter(names))
    monkeypatch.setattr(torch, "__version__", version)


def pop_with_another_argument(k: Any, stack: Any) -> None: ...


def group_with_another_argument(tensors: Any, indices: Any = False, by: Any = None) -> None: ...


# ---- Versions ----


def test_this_pytorch_is_as_expected_everywhere() -> None:
    assert torch_internals.missing(everywhere=True) == []
    assert list(map(str, self_check.changed(everywhere=True))) == []


def test_a_pytorch_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, BEFORE)
    with pytest.raises(UnsupportedOnVirtualGPU) as error:
        VirtualGPU("T4", torch_version="1.13").attach()
    assert BEFORE in str(error.value)
    assert f"pip install 'torch{KNOWN_RELEASES}'" in str(error.value)
    assert attached() is None


@pytest.mark.parametrize("version", [AFTER, f"{AFTER}.dev20990101+cpu", "3.0.0"])
def test_a_newer_pytorch_is_told_once_and_gets_the_newest_rules(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    install(monkeypatch, version)
    with pytest.warns(UserWarning, match="newer than the newest that vramlab knows") as caught:
        gpu = VirtualGPU("T4").attach()
    with contextlib.ExitStack() as then:
        then.callback(gpu.detach)
        x = torch.ones(1000, device="cuda")
        assert torch.cuda.memory_allocated() == 4096  # 4000 bytes in blocks of 512
        del x
    assert gpu.machine.torch_version == NEWEST
    with VirtualGPU("T4"):  # a second warning would be an error
        pass
    (one,) = caught
    assert one.filename == __file__
    assert version in str(one.message)
    assert f"rules of PyTorch {text(NEWEST)} are used" in str(one.message)


# ---- Names and arguments ----


def test_all_that_is_missing_is_named_with_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C, "_get_sdp_priority_order")
    monkeypatch.delattr(torch.cuda, "_queued_calls")
    with pytest.raises(UnsupportedOnVirtualGPU) as error:
        self_check.check()
    first, *names, last = str(error.value).splitlines()
    assert str(torch.__version__) in first
    assert [name.split()[0].strip(",") for name in names] == [
        "torch._C._get_sdp_priority_order",
        "torch.cuda._queued_calls",
    ]
    assert all(name.endswith(text(NEWEST)) for name in names)  # where it was seen last
    assert f"pip install 'torch{KNOWN_RELEASES}'" in last


@pytest.mark.parametrize("version", [str(torch.__version__), AFTER])
def test_nothing_is_attached_without_a_name(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.delattr(torch._C, "_get_sdp_priority_order")
    install(monkeypatch, version)
    with pytest.raises(UnsupportedOnVirtualGPU, match="_get_sdp_priority_order"):
        VirtualGPU("T4").attach()
    assert attached() is None
    assert not torch.cuda.is_available()


CHANGES = [
    # vramlab calls it with one argument, and it needs two
    (torch.utils._python_dispatch, "_pop_mode", pop_with_another_argument, "(k, stack)", "(key)"),
    # PyTorch may pass three arguments, and vramlab's replacement takes two
    (
        torch._C,
        "_group_tensors_by_device_and_dtype",
        group_with_another_argument,
        "(tensors, indices=False, by=None)",
        "(lists, with_indices=False)",
    ),
]


@pytest.mark.parametrize(("owner", "name", "function", "takes", "known"), CHANGES)
def test_other_arguments_are_an_error_in_a_known_pytorch(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, function: Any, takes: str, known: str
) -> None:
    monkeypatch.setattr(owner, name, function)
    with pytest.raises(UnsupportedOnVirtualGPU) as error:
        self_check.check()
    first, change, last = str(error.value).splitlines()
    assert str(torch.__version__) in first
    assert change.startswith(f"  {owner.__name__}.{name}, which ")
    assert change.endswith(f"takes {takes}, and vramlab knows {known}")
    assert "pip install" in last


def test_in_a_newer_pytorch_they_are_part_of_the_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, AFTER)
    for owner, name, function, _, _ in CHANGES:
        monkeypatch.setattr(owner, name, function)
    with pytest.warns(UserWarning, match="is newer than") as caught:
        self_check.check()
    (one,) = caught
    assert [name for _, name, _, _, _ in CHANGES if name in str(one.message)] == [
        "_pop_mode",
        "_group_tensors_by_device_and_dtype",
    ]


def test_a_c_function_is_compared_by_the_stub_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two arguments that PyTorch passes, the stand-in of `device` alone takes one."""
    monkeypatch.setattr(
        signatures.Stubs,
        "of",
        lambda self, name: (
            signatures.written("device, host") if name == "_cuda_memoryStats" else None
        ),
    )
    monkeypatch.delattr(torch._C, "_cuda_memoryStats", raising=False)
    (change,) = self_check.changed()
    assert str(change).startswith("torch._C._cuda_memoryStats, which ")
    assert str(change).endswith("takes (device, host), and vramlab knows (device)")
