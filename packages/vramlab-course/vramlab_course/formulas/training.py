"""A training step of a chain of Linear layers: memory at each moment, and its peak.

Program: y = model(x); loss = y.sum(); loss.backward(), with y and loss held by the caller, and no
gradients from before. Shapes: x (batch, widths[0]), y (batch, widths[-1]).

Source: 001 §2.24; the order of work inside AddmmBackward0 (generated from
tools/autograd/derivatives.yaml) and `validate_outputs` in torch/csrc/autograd/engine.cpp, which
sums a bias's gradient after both matrix products; `prepare_matrix_for_cublas` in
aten/src/ATen/native/cuda/cuBlasCommonArgs.h, which clones an expanded gradient. PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab_course.formulas.parameters import linear_chain_shapes

SCALAR_BYTES = block_bytes(4)
"""A loss is 4 bytes, and takes a block of 512."""

SumBuffers = Callable[[int, int], int]
"""(rows, columns) to the bytes that summing over the rows takes while it runs."""


@dataclass(frozen=True)
class LinearChain:
    """A chain of Linear layers and the batch that goes through it, all of one dtype.

    Attributes:
        batch: rows of the input.
        widths: of the input and of each layer's output.
        bias: whether the layers have one.
        dtype: of everything.
        fused_bias: whether product and bias are one op, as in nn.Linear on a matrix, or two, as in
            x @ W.t() + b.
    """

    batch: int
    widths: tuple[int, ...]
    bias: bool = True
    dtype: str = "float32"
    fused_bias: bool = True

    @property
    def parameters_bytes(self) -> int:
        """Return the bytes of all weights and biases; their gradients are as large."""
        shapes = linear_chain_shapes(self.widths, self.bias)
        return sum(block_bytes(tensor_bytes(shape, self.dtype)) for shape in shapes)

    def rows_bytes(self, width: int) -> int:
        """Return the bytes of an activation (batch, width), or of its gradient."""
        return block_bytes(tensor_bytes((self.batch, width), self.dtype))

    def weight_bytes(self, layer: int) -> int:
        """Return the bytes of the weight of layer 1, 2, ..., or of its gradient."""
        return block_bytes(tensor_bytes((self.widths[layer], self.widths[layer - 1]), self.dtype))

    def bias_bytes(self, layer: int) -> int:
        """Return the bytes of the bias of layer 1, 2, ..., or of its gradient."""
        return block_bytes(tensor_bytes((self.widths[layer],), self.dtype)) if self.bias else 0

    @property
    def held_before_backward_bytes(self) -> int:
        """Return the bytes of parameters, input, every output and the loss; no workspaces."""
        outputs_bytes = sum(map(self.rows_bytes, self.widths[1:]))
        return (
            self.parameters_bytes + self.rows_bytes(self.widths[0]) + outputs_bytes + SCALAR_BYTES
        )

    @property
    def held_after_backward_bytes(self) -> int:
        """Return the bytes of parameters, gradients, input, last output and loss; no workspaces."""
        ends_bytes = self.rows_bytes(self.widths[0]) + self.rows_bytes(self.widths[-1])
        return 2 * self.parameters_bytes + ends_bytes + SCALAR_BYTES

    def backward_moments(self, sum_buffers_bytes: SumBuffers) -> dict[str, int]:
        """Return allocated memory at the moments of the backward pass that can be its peak.

        Two for each layer, last layer first: 'clone N', when the second matrix product of layer N
        runs (with a clone of the gradient where that is expanded, which is only so for the last),
        and 'bias N', when the gradient of its bias is summed. Workspaces are not included.

        Args:
            sum_buffers_bytes: what a sum over rows takes while it runs; see `reductions`.
        """
        last = len(self.widths) - 1
        moments: dict[str, int] = {}
        gradients_bytes = 0
        for layer in range(last, 0, -1):
            # Outputs of layers 1 to layer - 1 are still saved; the caller holds input and y.
            saved_bytes = sum(self.rows_bytes(width) for width in self.widths[1:layer])
            ends_bytes = self.rows_bytes(self.widths[0]) + self.rows_bytes(self.widths[last])
            held_bytes = (
                self.parameters_bytes
                + ends_bytes
                + saved_bytes
                + SCALAR_BYTES
                + gradients_bytes
                + SCALAR_BYTES  # the gradient of the loss, 1, which starts the backward pass
            )
            # The gradient of y is that one number, expanded: it takes nothing by itself.
            own = 0 if layer == last else self.rows_bytes(self.widths[layer])
            clone = self.rows_bytes(self.widths[layer]) if layer == last else 0
            into = 0 if layer == 1 else self.rows_bytes(self.widths[layer - 1])
            products_bytes = into + self.weight_bytes(layer)
            bias_bytes = self.bias_bytes(layer)
            buffers_bytes = (
                sum_buffers_bytes(self.batch, self.widths[layer])
                if self.bias and layer != last
                else 0
            )
            if self.fused_bias:
                moments[f"clone {layer}"] = held_bytes + own + products_bytes + clone
                moments[f"bias {layer}"] = (
                    held_bytes + own + products_bytes + bias_bytes + buffers_bytes
                )
            else:
                moments[f"bias {layer}"] = held_bytes + own + bias_bytes + buffers_bytes
                moments[f"clone {layer}"] = held_bytes + own + bias_bytes + products_bytes + clone
            gradients_bytes += self.weight_bytes(layer) + bias_bytes
        return moments
