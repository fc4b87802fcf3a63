"""Operators of a run whose memory is uncertain, with the sizes of their tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vramlab.gpu.core.observers import Observer
from vramlab.gpu.core.op_table import OPS
from vramlab.gpu.core.storage_record import record_of
from vramlab.gpu.core.tensors import tensors_in
from vramlab.gpu.torch_internals import OpOverload
from vramlab.kernels import classify
from vramlab.kernels.unconfirmed import unconfirmed

UNREAD = "its CUDA kernel is not modelled yet"


class UnsureOperators(Observer):
    """Looks on while operators run.

    Attributes:
        reasons: by the operator's name, why its memory is not sure.
        largest_bytes: by name, the most that its operands and results had together in a call.
        counts: by name, how often it ran.
    """

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.largest_bytes: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self._names: dict[OpOverload, str] = {}

    def op_ran(
        self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Note the size of a call, if the operator's memory is not sure."""
        name = self._names.get(func)
        if name is None:
            name = self._names[func] = self._look_up(func)
        if not name:
            return
        sizes = {
            id(record): tensor.untyped_storage().nbytes()
            for tensor in tensors_in((*args, result), kwargs)
            if tensor.layout is torch.strided  # a sparse one is made of these
            and (record := record_of(tensor)) is not None
            and record.device_index >= 0
        }
        if sizes:
            self.counts[name] = self.counts.get(name, 0) + 1
            self.largest_bytes[name] = max(self.largest_bytes.get(name, 0), sum(sizes.values()))

    @property
    def confirmations(self) -> dict[str, str]:
        """What is not confirmed of the operators that ran, by name; without those never read."""
        return {
            name: reason
            for name, reason in self.reasons.items()
            if name in self.counts and reason != UNREAD
        }

    def _look_up(self, func: OpOverload) -> str:
        """Name an operator whose memory is not sure; empty: it is."""
        if (line := unconfirmed(func)) is not None:
            self.reasons[line.name] = line.reason
            return line.name
        spec = OPS[func]
        allocates_itself = spec.handler is not None and spec.make_outputs is None
        if allocates_itself or classify(func).name != "UNREVIEWED":
            return ""
        self.reasons[str(func)] = UNREAD
        return str(func)
