"""Copies from GPU to GPU are counted by link, and nothing else is."""

from __future__ import annotations

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.measure import record_links


@pytest.mark.parametrize("values", [False, True], ids=["no values", "values"])
def test_copies_between_gpus_by_link(values: bool) -> None:
    with VirtualGPU("T4", count=3, values=values):
        x = torch.zeros(1000, device="cuda:0")
        y = torch.zeros(500, device="cuda:2")
        with record_links() as links:
            x.to("cuda:1")
            x.to("cuda:1")
            y.copy_(x[:500])
            x.clone()
            x.cpu()
            torch.zeros(3).to("cuda:1")
        del x, y
    assert links.bytes_by_link == {(0, 1): 2 * 4000, (0, 2): 2000}
