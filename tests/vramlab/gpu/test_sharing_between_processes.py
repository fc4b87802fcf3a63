"""Tensors on a virtual GPU belong to one process."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch.multiprocessing.reductions import reduce_tensor

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU


def test_sharing_is_refused_with_what_to_do_instead(gpu: VirtualGPU) -> None:
    with pytest.raises(UnsupportedOnVirtualGPU, match="cannot be shared with other processes"):
        reduce_tensor(torch.empty(3, device="cuda"))


def test_host_tensors_without_values_are_sent_by_their_shape(gpu: VirtualGPU) -> None:
    """As workers send batches of images: 4 x 3 x 800 x 1333 in float32 are 49 MiB."""
    images = torch.rand(4, 3, 800, 1333).permute(0, 2, 3, 1)
    images.requires_grad_()
    received = pickle.loads(bytes(ForkingPickler.dumps(images)))
    assert (received.shape, received.stride()) == (images.shape, images.stride())
    assert (received.device, received.dtype) == (images.device, images.dtype)
    assert received.requires_grad
    weight = pickle.loads(bytes(ForkingPickler.dumps(torch.nn.Parameter(images.detach()))))
    assert isinstance(weight, torch.nn.Parameter)
    assert received.to("cuda").device.type == "cuda"


def test_small_host_tensors_keep_their_values(gpu: VirtualGPU) -> None:
    boxes = torch.arange(20.0).view(5, 4)
    sent = ForkingPickler.dumps(boxes)  # lives while it is received: it shares its memory
    assert torch.equal(pickle.loads(bytes(sent)), boxes)
