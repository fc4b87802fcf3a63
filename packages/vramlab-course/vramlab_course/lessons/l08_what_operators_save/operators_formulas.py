"""What common operators save for backward: their input, their output, or something else.

Source: tools/autograd/derivatives.yaml, PyTorch 2.13. An operator whose derivative is written with
`self` keeps its input, one with `result` its output; one that needs neither keeps nothing. That is
a decision of PyTorch's authors as much as of mathematics: GELU's derivative cannot be computed from
its output, sigmoid's can, and LeakyReLU's could be.

Parameters and buffers are not counted: they live anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from vramlab.cuda_rules.sizes import ITEM_BYTES, block_bytes


@dataclass(frozen=True)
class OperatorSizes:
    """Numbers of elements that what is kept depends on."""

    first: int
    """Of the first input."""
    second: int = 0
    """Of the second input, if there is one."""
    output: int = 0
    groups: int = 0
    """Statistics of a normalization: as many as rows, channels, or groups of channels."""
    one: int = 1


@dataclass(frozen=True)
class KeptByOperator:
    """One tensor that an operator keeps."""

    what: str
    count: Literal["first", "second", "output", "groups", "one"]
    """Which of the `OperatorSizes` says how many elements it has."""
    dtype: str = ""
    """Of the tensor; that of the operator's input if empty."""

    def size_bytes(self, sizes: OperatorSizes, dtype: str) -> int:
        """Return the size of its block in memory."""
        count: int = getattr(sizes, self.count)
        return block_bytes(count * ITEM_BYTES[self.dtype or dtype])


INPUT = KeptByOperator("input", "first")
SECOND_INPUT = KeptByOperator("second input", "second")
OUTPUT = KeptByOperator("output", "output")
MASK = KeptByOperator("mask", "first", "bool")
INDEX = KeptByOperator("index", "second", "int64")
CHOSEN = KeptByOperator("indices of the chosen", "output", "int64")
MEAN = KeptByOperator("mean", "groups", "float32")
SCALE = KeptByOperator("1 / standard deviation", "groups", "float32")

KEEPS: Mapping[str, tuple[KeptByOperator, ...]] = MappingProxyType(
    {
        # activation functions
        "relu": (OUTPUT,),
        "leaky_relu": (INPUT,),
        "elu": (INPUT,),
        "gelu": (INPUT,),
        "silu": (INPUT,),
        "sigmoid": (OUTPUT,),
        "tanh": (OUTPUT,),
        "softmax": (OUTPUT,),
        "dropout": (MASK,),
        # arithmetic
        "x + y": (),
        "x + 1": (),
        "2 * x": (),
        "x * y": (INPUT, SECOND_INPUT),
        "x / y": (INPUT, SECOND_INPUT),
        "x ** 2": (INPUT,),
        "exp": (OUTPUT,),
        "sqrt": (OUTPUT,),
        "log": (INPUT,),
        "abs": (INPUT,),
        "sum": (),
        "max": (CHOSEN,),
        # with parameters
        "linear": (INPUT,),
        "x @ y": (INPUT, SECOND_INPUT),
        "conv2d": (INPUT,),
        "embedding": (INDEX,),
        # normalization
        "layer_norm": (INPUT, MEAN, SCALE),
        "rms_norm": (INPUT, SCALE),
        "group_norm": (INPUT, MEAN, SCALE),
        "batch_norm": (INPUT, MEAN, SCALE),
        # pooling
        "max_pool2d": (INPUT, CHOSEN),
        "avg_pool2d": (INPUT,),
        # choosing and arranging
        "x[i]": (INDEX,),
        "cat": (),
        "view": (),
        "transpose": (),
        "reshape that copies": (),
        # losses
        "mse_loss": (INPUT, SECOND_INPUT),
        "cross_entropy": (
            KeptByOperator("log-probabilities", "first"),
            INDEX,
            KeptByOperator("sum of weights", "one"),
        ),
    }
)
"""What each operator keeps, by its name in PyTorch or as it is written."""


def held_bytes(name: str, sizes: OperatorSizes, dtype: str = "float32") -> int:
    """Return what an operator keeps alive when inputs and output have no other reference.

    Args:
        name: a key of `KEEPS`.
        sizes: of this call.
        dtype: of what goes in, except for indices.
    """
    return sum(kept.size_bytes(sizes, dtype) for kept in KEEPS[name])
