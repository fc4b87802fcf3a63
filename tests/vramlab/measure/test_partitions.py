"""What a traced function keeps for backward depends on where its graph is cut."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vramlab.measure.partitions import Partition, kept_for_backward


def cosines(x: Tensor) -> Tensor:
    return x.cos().cos().cos().sum()


@pytest.mark.parametrize(
    ("partition", "tensors"),
    [
        ("eager", 2),  # what the second and the third get; the first's input is not extra
        ("default", 2),
        ("min-cut", 0),  # all from the input again
    ],
)
def test_element_wise_ops_are_computed_anew(partition: Partition, tensors: int) -> None:
    x = torch.zeros(1000, requires_grad=True)
    assert kept_for_backward(cosines, x, partition=partition) == tensors * 4000
