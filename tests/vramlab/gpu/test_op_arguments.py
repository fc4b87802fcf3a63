"""Arguments of ops: what is a leaf is what PyTorch's own trees say."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

from vramlab.gpu.core.tensors import map_leaves

_Pair = namedtuple("_Pair", ["first", "second"])


@pytest.mark.parametrize(
    "value",
    [
        (1, [2, {"a": 3}], None),
        _Pair(1, (2,)),
        [OrderedDict(a=1), torch.Size([2, 3])],
        {"dtype": torch.float32, "slices": (slice(1, 2), ...)},
        torch.float64,
    ],
)
def test_leaves_are_those_of_pytorch(value: Any) -> None:
    found = map_leaves(lambda leaf: ("leaf", leaf), value)
    expected = tree_map(lambda leaf: ("leaf", leaf), value)
    assert (type(found), found) == (type(expected), expected)
