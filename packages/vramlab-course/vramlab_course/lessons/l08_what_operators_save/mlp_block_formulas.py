"""A transformer's MLP block: what it saves for backward, to the byte.

    z = x + dropout(activation(x W1 + b1) W2 + b2)

001 §3.2 begins this account and stops in the middle of its second line. With b sequences
of s tokens, width h, and a middle that is four times as wide, at 4 bytes for a number:

    the first linear layer keeps its input                             4 bsh
    GELU keeps its input                                              16 bsh
    the second linear layer keeps its input, which is GELU's output   16 bsh
    dropout keeps a mask, one byte for each element                      bsh
    the sum keeps nothing                                                  0

That is 37 bsh. In 16 bit everything but the mask is half as large: 2 + 8 + 8 + 1 = 19 bsh, which is
what arXiv 2205.05198 §4.1 counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab_course.lessons.l08_what_operators_save.operators_formulas import INPUT, KEEPS


@dataclass(frozen=True)
class MLPBlock:
    """Sizes of a block and of its batch.

    Attributes:
        batch, sequence, width: shape of x.
        factor: how many times as wide the middle is.
        activation: a name in `operators.KEEPS` that keeps its input or its output.
        dropout: whether there is one, with a probability above 0, in train().
        dtype: of everything but the mask.
    """

    batch: int
    sequence: int
    width: int
    factor: int = 4
    activation: str = "gelu"
    dropout: bool = True
    dtype: str = "float32"

    @property
    def elements(self) -> int:
        """Return the elements of x: b x s x h."""
        return self.batch * self.sequence * self.width

    def kept(self) -> dict[str, int]:
        """Return the bytes saved for backward, tensor by tensor, including x."""
        outer_bytes = block_bytes(tensor_bytes((self.elements,), self.dtype))
        inner_bytes = block_bytes(tensor_bytes((self.factor * self.elements,), self.dtype))
        kept = {"input of the first linear layer": outer_bytes}
        if INPUT in KEEPS[self.activation]:
            kept["input of the activation function"] = inner_bytes
        # An activation function that keeps its output keeps the same tensor.
        kept["input of the second linear layer"] = inner_bytes
        if self.dropout:
            kept["mask of dropout"] = block_bytes(tensor_bytes((self.elements,), "bool"))
        return kept

    @property
    def kept_bytes(self) -> int:
        """Return all bytes saved for backward, including x."""
        return sum(self.kept().values())

    @property
    def growth_bytes(self) -> int:
        """Return what a forward pass adds: without x, with the output."""
        output_bytes = block_bytes(tensor_bytes((self.elements,), self.dtype))
        return self.kept_bytes - self.kept()["input of the first linear layer"] + output_bytes
