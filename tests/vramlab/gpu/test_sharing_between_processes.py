"""Tensors on a virtual GPU belong to one process."""

from __future__ import annotations

import pytest
import torch
from torch.multiprocessing.reductions import reduce_tensor

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU


def test_sharing_is_refused_with_what_to_do_instead(gpu: VirtualGPU) -> None:
    with pytest.raises(UnsupportedOnVirtualGPU, match="cannot be shared with other processes"):
        reduce_tensor(torch.empty(3, device="cuda"))
