"""Lower bounds for copies between host and GPU, at the peak rates of the catalogue."""

from __future__ import annotations

import torch
from torch import nn

from vramlab.catalogue import GPUModel
from vramlab.cuda_rules.durations import compute_seconds, copy_seconds, memory_seconds
from vramlab.measure import record_operators, record_transfers
from vramlab.programs.offloading import SavedOnHost


def link_times(card: GPUModel) -> dict[str, float]:
    """Return the seconds for reading a GPU's memory once, and for filling it from the host."""
    return {
        "read its own memory": memory_seconds(card.total_bytes, card),
        "fill it from the host": copy_seconds(card.total_bytes, card),
    }


def hidden_copy_times(width: int, card: GPUModel, rows: int = 4096) -> dict[str, float]:
    """Return the seconds of a Linear layer's forward pass in float16, and of its input's copy.

    Args:
        width: of the layer's input and output.
        card: the GPU whose rates count.
        rows: of the input.
    """
    layer = nn.Linear(width, width, bias=False, dtype=torch.float16, device="cuda")
    x = torch.zeros(rows, width, dtype=torch.float16, device="cuda", requires_grad=True)
    saved_there = SavedOnHost(layer.parameters())
    with record_operators() as calls, record_transfers() as transfers, saved_there:
        layer(x)
    return {
        "arithmetic": compute_seconds(calls.flops, card, "float16"),
        "copy to the host": copy_seconds(transfers.to_host_bytes, card),
    }
