"""What is known of an op: a rule, nothing to know, a library's secret, or nothing yet."""

from __future__ import annotations

import pytest
import torch

from vramlab.kernels import Knowledge, classify
from vramlab.kernels.classify import PLAIN, WORKSPACE_UNKNOWN
from vramlab.kernels.rule_table.registry import overloads

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("func", "expected"),
    [
        (aten.mm.default, Knowledge.RULE),
        (aten.relu.default, Knowledge.PLAIN),  # tagged pointwise
        (aten.relu_.default, Knowledge.PLAIN),
        (aten.add.out, Knowledge.PLAIN),
        (aten.view.default, Knowledge.PLAIN),  # shares its argument's storage
        (aten.split.Tensor, Knowledge.PLAIN),
        (aten.transpose_.default, Knowledge.PLAIN),  # a view in place
        (aten.empty.memory_format, Knowledge.PLAIN),  # listed
        (aten.index_copy_.default, Knowledge.PLAIN),
        (aten._foreach_add_.List, Knowledge.PLAIN),
        (aten.convolution.default, Knowledge.RULE),
        (aten.cudnn_convolution.default, Knowledge.WORKSPACE_UNKNOWN),
        (aten.linalg_svd.default, Knowledge.UNREVIEWED),
    ],
)
def test_classify(func: torch._ops.OpOverload, expected: Knowledge) -> None:
    assert classify(func) is expected


SINCE = {
    "_c10d_functional.wait_tensors": (2, 15),
    "aten._philox_key_fold_in": (2, 12),
    "aten._philox_randint": (2, 15),
    "aten._philox_randint_": (2, 15),
    "aten.shallow_copy_data_": (2, 14),
}
"""Ops that came later than the oldest PyTorch that is supported."""


def test_every_listed_name_is_an_op_of_this_torch() -> None:
    unknown = [name for name in (*PLAIN, *WORKSPACE_UNKNOWN) if not list(overloads(name))]
    assert unknown == [name for name, version in SINCE.items() if torch.__version__ < version]


def test_no_op_is_listed_twice() -> None:
    listed = (*PLAIN, *WORKSPACE_UNKNOWN)
    assert len(set(listed)) == len(listed)
