"""Everything that watches one run on a virtual GPU.

For example:

    with vramlab.VirtualGPU("T4") as gpu, Watch(gpu) as watch:
        train(model)
    watch.devices[0].peak()
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from vramlab.allocator import precedence_of
from vramlab.gpu import VirtualGPU
from vramlab.measure import Category
from vramlab.report.evidence.origins import Origins
from vramlab.report.evidence.owners import Owners, Seen
from vramlab.report.evidence.peak import PeakWatch
from vramlab.report.evidence.stages import watching
from vramlab.report.evidence.steps import Steps
from vramlab.report.evidence.unsure_operators import UnsureOperators

_PRECEDENCE = (
    Category.PARAMETERS,
    Category.BUFFERS,
    Category.OPTIMIZER_STATES,
    Category.GRADIENTS,
    Category.WORKSPACES,
    Category.INPUTS,
    Category.ACTIVATIONS,
)
"""Which category a block has that several tensors share."""


class Watch:
    """Watches all GPUs of a machine while the body of the with statement runs.

    Args:
        gpu: attached already or not.
        most_steps: end the program by `Stopped` after so many training steps; None: never.

    Attributes:
        devices: one watch for each GPU, by index.
        steps: counts the steps and passes of the training.
        operators: those whose memory is not sure.
        allocators: of each GPU, by index.
        precedence: which free block they take.
    """

    def __init__(self, gpu: VirtualGPU, most_steps: int | None = None) -> None:
        self.steps = Steps(most_steps)
        self._tick = itertools.count(1).__next__
        self._machine = gpu.machine
        self.allocators = tuple(device.allocator for device in gpu.machine.devices)
        self.precedence = precedence_of(gpu.machine.torch_version)
        self._origins = Origins()
        self.devices = tuple(
            PeakWatch(device.allocator, self._tick, self._origins.of_allocation)
            for device in gpu.machine.devices
        )
        self._owners = Owners(self._claim)
        self.operators = UnsureOperators()
        for device in gpu.machine.devices:
            device.allocator.add_oom_observer(self._memory_runs_out)

    def __enter__(self) -> Watch:
        self._machine.add_observer(self._origins)
        self._machine.add_observer(self.operators)
        self._owners.install()
        self.steps.__enter__()
        watching.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        watching.remove(self)
        self.steps.__exit__()
        self._owners.look_everywhere()
        self._owners.remove()
        self._machine.remove_observer(self._origins)
        self._machine.remove_observer(self.operators)

    def look_everywhere(self) -> None:
        """Claim all that is known to be a parameter, a gradient, an optimizer state or the like."""
        self._owners.look_everywhere()

    def stage_begins(self, name: str) -> None:
        """Note that a stage of the program begins."""
        for device in self.devices:
            device.stage_begins(name)

    def stage_ends(self) -> None:
        """Note that the innermost stage ends."""
        for device in self.devices:
            device.stage_ends()

    def _memory_runs_out(self, *_: int) -> None:
        self._owners.look_everywhere()

    def _claim(self, seen: Sequence[Seen]) -> None:
        claim(self.devices, seen)


def claim(watches: Sequence[PeakWatch], seen: Iterable[Seen]) -> None:
    """Note what the tensors are whose blocks begin at addresses, unless it is said already.

    Args:
        watches: of the GPUs, by index.
        seen: the tensors.
    """
    for device, address, category in seen:
        block = watches[device].block_at(address)
        if block is None or block.owner is category:
            continue
        if block.owner is None or _PRECEDENCE.index(category) < _PRECEDENCE.index(block.owner):
            block.owner = category
