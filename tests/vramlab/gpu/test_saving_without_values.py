"""Checkpoints of models that have no values: what is kept, and what loading them allocates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save, save_file

from vramlab.errors import NoValuesError
from vramlab.gpu import VirtualGPU

WEIGHT_BYTES = 1024 * 256 * 4  # of Linear(256, 1024) in float32: 1 MiB
BIAS_BYTES = 1024 * 4


@pytest.fixture
def checkpoint(nan_gpu: VirtualGPU, tmp_path: Path) -> Path:
    """A file with the state of a linear layer, one tensor twice, and something of the host."""
    state = torch.nn.Linear(256, 1024).cuda().state_dict()
    tied = {"state": state, "tied": state["weight"].t(), "host": torch.arange(3), "epoch": 7}
    torch.save(tied, tmp_path / "checkpoint.pt")
    return tmp_path / "checkpoint.pt"


def test_the_file_is_small_and_counted_as_a_read(checkpoint: Path, nan_gpu: VirtualGPU) -> None:
    assert checkpoint.stat().st_size < 10_000 < WEIGHT_BYTES
    ((what, line),) = nan_gpu.values.reads  # type: ignore[attr-defined]
    assert what == "saving (shapes only)"
    assert "test_saving_without_values.py" in line


@pytest.mark.parametrize("map_location", [None, "cuda", torch.device("cuda:0"), {"cpu": "cpu"}])
def test_loading_allocates_each_storage_once(map_location: Any, checkpoint: Path) -> None:
    before = torch.cuda.memory_allocated()
    loaded = torch.load(checkpoint, map_location=map_location)
    # "tied" shares its storage with the weight. A map to cuda moves the host's tensor, too: 512 B.
    moved_bytes = 512 if map_location in ("cuda", torch.device("cuda:0")) else 0
    assert torch.cuda.memory_allocated() - before == WEIGHT_BYTES + BIAS_BYTES + moved_bytes
    assert loaded["tied"].shape == (256, 1024)
    assert loaded["tied"].stride() == (1, 256)
    assert loaded["tied"].data_ptr() == loaded["state"]["weight"].data_ptr()
    assert loaded["epoch"] == 7


@pytest.mark.parametrize("map_location", ["cpu", {"cuda:0": "cpu"}, lambda storage, place: storage])
def test_what_is_loaded_to_the_host_takes_nothing_of_the_gpu(
    map_location: str | dict[str, str] | Callable[..., Any], checkpoint: Path
) -> None:
    before = torch.cuda.memory_allocated()
    loaded = torch.load(checkpoint, map_location=map_location)
    assert torch.cuda.memory_allocated() == before
    assert loaded["state"]["weight"].device == torch.device("cpu")
    assert loaded["host"].tolist() == [0, 1, 2]
    layer = torch.nn.Linear(256, 1024).cuda()
    layer.load_state_dict(loaded["state"])
    assert layer.weight.device == torch.device("cuda:0")


def test_it_cannot_be_taken_for_a_real_checkpoint(nan_gpu: VirtualGPU, tmp_path: Path) -> None:
    torch.save(torch.randn(3, device="cuda"), tmp_path / "tensor.pt")
    nan_gpu.detach()
    with pytest.raises(NoValuesError, match="holds no values, only the sizes and places"):
        torch.load(tmp_path / "tensor.pt", weights_only=False)
    nan_gpu.attach()


def test_a_whole_model_can_be_saved_and_used_again(nan_gpu: VirtualGPU, tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(8, 2).cuda(), tmp_path / "model.pt")
    model = torch.load(tmp_path / "model.pt", weights_only=False)
    assert model.weight.requires_grad
    assert model(torch.randn(4, 8, device="cuda")).shape == (4, 2)


def test_a_safetensors_file_has_the_header_of_a_real_one(
    nan_gpu: VirtualGPU, tmp_path: Path
) -> None:
    tensors = {
        "weight": torch.randn(5, 3, device="cuda").half(),
        "steps": torch.randint(9, (2,), device="cuda"),
    }
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    written = path.read_bytes()
    header_bytes = int.from_bytes(written[:8], "little")
    assert json.loads(written[8 : 8 + header_bytes]) == {
        "__metadata__": {"format": "pt"},
        "weight": {"dtype": "F16", "shape": [5, 3], "data_offsets": [0, 30]},  # 15 elements, 2 B
        "steps": {"dtype": "I64", "shape": [2], "data_offsets": [30, 46]},  # 2 elements, 8 B
    }
    assert len(written) == 8 + header_bytes + 46
    assert save(tensors, metadata={"format": "pt"}) == written
    loaded = load_file(path, device="cuda:0")
    assert {name: tuple(tensor.shape) for name, tensor in loaded.items()} == {
        "weight": (5, 3),
        "steps": (2,),
    }
