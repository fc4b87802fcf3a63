"""How many parameters a layer has.

Source: 001 §2.21 for Linear, Conv2d, BatchNorm and Embedding; the shapes that torch.nn
gives the layers' parameters (torch/nn/modules) for the rest. ReLU, pooling and Dropout have none.
"""

from __future__ import annotations

from itertools import pairwise


def linear(inputs: int, outputs: int, bias: bool = True) -> int:
    """Return the number of parameters: weight (outputs, inputs) and bias (outputs)."""
    return outputs * inputs + (outputs if bias else 0)


def conv2d(inputs: int, outputs: int, kernel: int, bias: bool = True, groups: int = 1) -> int:
    """Return the number of parameters of a convolution.

    Its weight is (outputs, inputs / groups, kernel, kernel), its bias (outputs).
    """
    return outputs * (inputs // groups) * kernel * kernel + (outputs if bias else 0)


def batch_norm(channels: int) -> int:
    """Return the number of parameters: weight and bias (channels) each.

    On the GPU there are three buffers besides, which no optimizer sees: `batch_norm_buffer_bytes`.
    """
    return 2 * channels


def batch_norm_buffer_bytes(channels: int) -> int:
    """Return running_mean and running_var (channels, float32), and num_batches_tracked (int64)."""
    return 2 * channels * 4 + 8


def layer_norm(features: int) -> int:
    """Return the number of parameters: weight and bias (features) each."""
    return 2 * features


def embedding(rows: int, width: int) -> int:
    """Return the number of parameters: weight (rows, width)."""
    return rows * width


def multihead_attention(width: int, bias: bool = True) -> int:
    """Return the number of parameters of multi-head attention, biases included.

    They are in_proj (3 x width, width) and out_proj (width, width), each with a bias. The number of
    heads does not matter: they share the width among them.
    """
    return linear(width, 3 * width, bias) + linear(width, width, bias)


def linear_chain(widths: tuple[int, ...], bias: bool = True) -> int:
    """Return the parameters of Linear layers; `widths` are the input's and each output's."""
    return sum(linear(inputs, outputs, bias) for inputs, outputs in pairwise(widths))


def linear_chain_shapes(widths: tuple[int, ...], bias: bool = True) -> list[tuple[int, ...]]:
    """Return the shapes of a chain of Linear layers, in the order of `parameters()`."""
    shapes: list[tuple[int, ...]] = []
    for inputs, outputs in pairwise(widths):
        shapes.append((outputs, inputs))
        if bias:
            shapes.append((outputs,))
    return shapes
