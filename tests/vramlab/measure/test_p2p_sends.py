"""Bytes from rank to rank."""

from __future__ import annotations

import torch
import torch.distributed as dist

from vramlab import VirtualGPU
from vramlab.measure import record_sends
from vramlab.programs.alone import alone


def test_sends_are_counted_by_who_gets_them() -> None:
    with VirtualGPU("T4"), alone(4, 1):
        x = torch.zeros(1024, device="cuda")  # 4096 B
        dist.send(x, 3)
        with record_sends() as sends:
            dist.send(x, 2)
            dist.isend(x.half(), 2)
            dist.send(x, 0)
            dist.recv(x, 0)
            dist.all_reduce(x)
    assert sends.bytes_to == {2: 4096 + 2048, 0: 4096}
    assert sends.sent_bytes == 10240
