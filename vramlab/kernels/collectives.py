"""Rules of collectives: what NCCL's process group takes beside the tensors it is given.

Known limitation: with `async_op=True` the flat tensor lives until the work is waited for; here it
goes when the op ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from vramlab.kernels.rule_table.operands import nbytes
from vramlab.kernels.rule_table.registry import Call, Status, Step, Take, rule

_SOURCE = "torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, PyTorch 2.13"


def _flat(tensors: Sequence[Tensor]) -> Iterable[Step]:
    """Yield the flat tensor that stands for several of one size."""
    if len({tensor.shape for tensor in tensors}) == 1:
        yield Take(sum(map(nbytes, tensors)), "flat tensor")


@rule(
    "c10d.allgather_.default",
    takes="a flat tensor for all outputs, where they have one size",
    source=f"allgather in {_SOURCE}",
    status=Status.FROM_SOURCE,
)
def all_gather(call: Call, output_tensors: list[list[Tensor]], *_: object) -> Iterable[Step]:
    for outputs in output_tensors:
        yield from _flat(outputs)


@rule(
    "c10d.reduce_scatter_.default",
    takes="a flat tensor of all inputs, where they have one size",
    source=f"reduce_scatter in {_SOURCE}",
    status=Status.FROM_SOURCE,
)
def reduce_scatter(
    call: Call, output_tensors: list[Tensor], input_tensors: list[list[Tensor]], *_: object
) -> Iterable[Step]:
    for inputs in input_tensors:
        yield from _flat(inputs)
