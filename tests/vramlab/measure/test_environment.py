"""An experiment starts as in a fresh process, whatever earlier work has left behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from vramlab.gpu import VirtualGPU
from vramlab.measure.environment import gpu_environment, start_afresh


@pytest.fixture(autouse=True)
def no_collections_of_pythons_own() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_garbage_gives_its_memory_back(device: str) -> None:
    with VirtualGPU("T4", 2):
        circle: list[object] = [torch.zeros(1024, device=device)]
        circle.append(circle)
        del circle
        assert torch.cuda.memory_allocated(device) == 1024 * 4
        start_afresh()
        assert torch.cuda.memory_allocated(device) == 0
        assert torch.cuda.memory_reserved(device) == 0


def test_nothing_is_collected_where_only_a_workspace_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collections: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collections.append(1))
    with VirtualGPU("T4", torch_version="2.14"):  # 2.15 keeps no workspace
        square = torch.zeros(8, 8, device="cuda")
        square @ square
        del square
        assert torch.cuda.memory_allocated() > 0
        start_afresh()
        assert torch.cuda.memory_reserved() == 0
        held = torch.zeros(8, device="cuda")
        start_afresh()
        assert torch.cuda.memory_allocated() == 512  # one block, 8 x 4 B rounded up
        del held
    assert len(collections) == 1


def test_a_virtual_gpu_stands_for_a_pytorch_and_another_may_be_installed() -> None:
    installed = tuple(map(int, torch.__version__.split(".")[:2]))
    with VirtualGPU("T4", torch_version="2.11"):
        here = gpu_environment()
    assert here.torch_version == (2, 11)
    assert here.installed_version == installed
