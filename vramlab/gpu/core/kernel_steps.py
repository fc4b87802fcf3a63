"""Carry out what a rule says that a kernel asks of the caching allocator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from vramlab.allocator import Block
from vramlab.kernels import Convolve, Marker
from vramlab.kernels.rule_table.cublas import workspaces

if TYPE_CHECKING:
    from vramlab.gpu.core.dispatcher import Dispatcher


class KernelSteps:
    """Carries out the steps of a kernel's rule: an `Allocates` on one GPU."""

    __slots__ = ("_device_index", "_dispatcher", "_outputs")

    def __init__(
        self, dispatcher: Dispatcher, device_index: int, outputs: Sequence[torch.Tensor | None]
    ) -> None:
        self._dispatcher = dispatcher
        self._device_index = device_index
        self._outputs = outputs

    def take(self, size_bytes: int, what: str) -> Block:
        machine = self._dispatcher.machine
        machine.kernel_takes(self._device_index, size_bytes, what)
        return machine.malloc(self._device_index, size_bytes, what)

    def give(self, handle: Block) -> None:
        self._dispatcher.machine.free(self._device_index, handle)

    def output(self, index: int, storage_bytes: int | None) -> None:
        output = self._outputs[index]
        if output is not None:
            self._dispatcher.allocate_storage(output, self._device_index, storage_bytes)

    def workspace(self, library: Marker) -> None:
        machine = self._dispatcher.machine
        device = machine.devices[self._device_index]
        for_the_call: list[Block] = []
        for workspace in workspaces(library, device.kernel_context):
            if not workspace.kept:
                if workspace.size_bytes:
                    for_the_call.append(self.take(workspace.size_bytes, workspace.pool))
                continue
            handle = self._dispatcher.handle_owner(), machine.current_stream(self._device_index)
            if device.lacks_workspace(workspace, *handle):
                machine.kernel_takes(
                    self._device_index, workspace.size_bytes, workspace.pool, is_kept=True
                )
                device.keep_workspace(workspace, *handle, machine.allocation_context())
        for block in reversed(for_the_call):
            self.give(block)

    def convolve(self, step: Convolve) -> None:
        device = self._dispatcher.machine.devices[self._device_index]
        sizes_bytes = device.cudnn(step.convolution, benchmark=step.benchmark)
        if sizes_bytes is not None:
            device.plans.execute(
                step.convolution,
                sizes_bytes,
                self,
                thread=self._dispatcher.handle_owner(),
                benchmark=step.benchmark,
            )

    def largest_bytes(self) -> int:
        return self._dispatcher.machine.devices[self._device_index].allocator.largest_free_bytes()

    def empty_cache(self) -> None:
        self._dispatcher.machine.empty_cache()
