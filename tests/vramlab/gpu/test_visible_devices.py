"""CUDA_VISIBLE_DEVICES, set by a program before it uses a GPU."""

from __future__ import annotations

import pytest
import torch

from vramlab.catalogue import find
from vramlab.gpu import VirtualGPU
from vramlab.gpu.core.identities import device_uuid, visible_count

UUIDS = ("aa11", "ab22")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *(("", 0), ("-1", 0), ("0", 1), ("1", 1), ("0,1", 2), (" 1, 0", 2), ("0,5,1", 1)),
        *(("0,-1,1", 1), ("0,0", 0), ("GPU-ab22", 1), ("GPU-ab,GPU-aa", 2), ("GPU-a", 0)),
    ],
)
def test_what_is_named_is_counted_up_to_the_first_that_is_none(text: str, count: int) -> None:
    assert visible_count(text, UUIDS) == count


def test_a_program_hides_gpus(gpus: VirtualGPU, monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch.cuda.device_count() == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert (torch.cuda.device_count(), torch.cuda.is_available()) == (1, True)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.zeros(1, device="cuda:1")
    kept = torch.zeros(1, device="cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")  # too late
    assert torch.cuda.device_count() == 1
    del kept


def test_a_program_names_a_gpu_by_its_identity(
    gpus: VirtualGPU, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-{device_uuid(find('T4'), 1)}")
    assert torch.cuda.device_count() == 1


def test_real_gpus_that_were_hidden_before_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with VirtualGPU("T4"):
        assert torch.cuda.is_available()
