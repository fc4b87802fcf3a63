"""The data parallel explorer: sums of the closed form are what is measured, on every GPU."""

from __future__ import annotations

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.units import MIB
from vramlab.widgets import data_parallel_explorer
from vramlab.widgets.data_parallel_explorer import WAYS, show_data_parallel

SMALL = {"gpus": 2, "batch": 64, "optimizer": "SGD", "classes": 1024}


@pytest.mark.parametrize("way", WAYS)
def test_predicted_is_measured(way: str) -> None:
    view = show_data_parallel(**SMALL, way=way)
    (table,) = view.tables
    assert all(predicted == measured for _, predicted, measured, _ in table.rows)
    assert len(table.rows) == (2 if way.startswith("Data") else 1)


def test_the_two_meanings_of_batch_size() -> None:
    assert "32 of 64 rows on each GPU." in show_data_parallel(**SMALL, way=WAYS[0]).summary
    ddp = show_data_parallel(**SMALL, way=WAYS[2]).summary
    assert "64 rows on each GPU, 128 in a step." in ddp
    # 13 weights of 4 MiB; two ranks send each piece once to and once fro: 52 MiB
    assert "sends 52 MiB in a step" in ddp


def test_an_attached_gpu_is_not_disturbed() -> None:
    explorer = data_parallel_explorer(**SMALL)
    with VirtualGPU("T4"):
        kept = torch.empty(6 * MIB, dtype=torch.uint8, device="cuda")
        before = torch.cuda.memory_stats()
        explorer.controls["way"].value = WAYS[3]
        assert torch.cuda.memory_stats() == before
        assert kept.is_cuda
    assert 'role="alert"' not in explorer.output.value
    assert "Each of the 2 ranks" in explorer.output.value
