"""Record what happens to a GPU's memory, with torch's own memory history.

    with record_timeline() as recording:
        recording.watch(model=model, optimizer=optimizer, inputs=x)
        recording.stage("forward")
        loss = model(x).sum()
        recording.stage("backward")
        loss.backward()
        recording.stage("optimizer step")
        optimizer.step()
    timeline = recording.timeline
    timeline.peak().allocated_bytes

What autograd saves is known from its graph, whatever the stages are called. Works on a real GPU and
on a virtual one. A recording keeps no tensor alive that it watches.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch

from vramlab.categories import Category
from vramlab.gpu.torch_internals import memory_snapshot, record_memory_history
from vramlab.measure import graph
from vramlab.measure.history.rebuild import timeline_from_snapshots
from vramlab.measure.tensors import named_tensors, storage_addresses
from vramlab.measure.timeline import Timeline


@contextmanager
def record_timeline(
    device: int | None = None, *, stacks: Literal["python", "all"] = "python"
) -> Iterator[Recording]:
    """Record one device's memory while the body of the with statement runs.

    torch's peak counters start again, and its memory history is switched on, and off again at the
    end (also if it was on before). When the body raises, the timeline up to there can still be had.

    Args:
        device: index of the GPU; the current one if None.
        stacks: "all" for C++ frames too, which tell ops and autograd's nodes.
    """
    torch.cuda.init()
    recording = Recording(torch.cuda.current_device() if device is None else device)
    recording._start(stacks)
    try:
        yield recording
    finally:
        recording._stop()


class Recording:
    """A timeline in the making: what `with record_timeline() as recording` gives."""

    def __init__(self, device: int) -> None:
        self.device = device
        self._marks: list[tuple[str | None, int]] = []
        self._sightings: list[tuple[int, int, str, str]] = []
        self._backward_passes: list[tuple[int, int]] = []
        self._backward_began: int | None = None
        self._models: list[weakref.ref[torch.nn.Module]] = []
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self._hooks: list[Any] = []
        self._measured_peak_bytes = 0
        self._first: Mapping[str, Any] = {}
        self._last: Mapping[str, Any] = {}
        self._counted_before = 0
        self._counted = 0
        self._timeline: Timeline | None = None
        self._running = False

    def stage(self, name: str | None) -> None:
        """Begin a stage here; the one before ends. None ends it and begins no other."""
        self._must_run(f"stage({name!r})")
        self._look()
        self._look_at_graphs()
        self._marks.append((name, self._counted))

    def watch(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        inputs: Any = None,
        states: Any = None,
    ) -> None:
        """Register the program's tensors, so that their blocks can be named.

        Parameters, buffers, gradients and optimizer states are looked up now, at every `stage()`,
        before and after every step of the optimizer, and at the end; inputs now.

        Args:
            model: its parameters (with their gradients) and buffers.
            optimizer: its parameters (with their gradients) and their states.
            inputs: a tensor, or tensors in lists, tuples and dicts.
            states: the same, of an optimizer that is none of torch's.
        """
        self._must_run("watch()")
        if model is not None:
            self._models.append(weakref.ref(model))
        if optimizer is not None:
            self._optimizers.append(weakref.ref(optimizer))
            self._hooks.append(optimizer.register_step_pre_hook(self._look_around_step))
            self._hooks.append(optimizer.register_step_post_hook(self._look_around_step))
        self._look()
        for label, tensor in named_tensors(inputs, "input"):
            self._see(tensor, Category.INPUTS, label)
        for label, tensor in named_tensors(states, "state"):
            self._see(tensor, Category.OPTIMIZER_STATES, label)

    @property
    def timeline(self) -> Timeline:
        """The timeline; RuntimeError while the recording still runs.

        Raises:
            IncompleteTraceError: events are missing from torch's trace.
        """
        if self._running:
            raise RuntimeError(
                "the recording still runs: ask for its timeline after the with block"
            )
        if self._timeline is None:
            self._timeline = timeline_from_snapshots(
                self._first,
                self._last,
                self.device,
                marks=self._marks,
                sightings=self._sightings,
                backward_passes=self._backward_passes,
                counted=self._counted,
                measured_peak_bytes=self._measured_peak_bytes,
            )
        return self._timeline

    def wants_saved(self) -> bool:
        """Say yes: part of `graph.GraphObserver`."""
        return True

    def saved(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """See where tensors are that a backward pass needs: part of `graph.GraphObserver`."""
        self._counted = self._count()
        for op, tensor in tensors:
            self._see(tensor, Category.ACTIVATIONS, f"saved by {op}")

    def backward_begins(self, *_: Any, **__: Any) -> None:
        """Note that autograd's engine runs from here on."""
        self._backward_began = self._count()

    def backward_ended(self) -> None:
        """Note that it has run."""
        if self._backward_began is not None:
            self._backward_passes.append((self._backward_began, self._count()))

    def _start(self, stacks: Literal["python", "all"]) -> None:
        record_memory_history("all", context="alloc", stacks=stacks)
        self._first = memory_snapshot()
        torch.cuda.reset_peak_memory_stats(self.device)
        self._counted_before = self._events_counted()
        self._running = True
        graph.add_observer(self)

    def _stop(self) -> None:
        graph.remove_observer(self)
        self._look()
        self._look_at_graphs()
        self._last = memory_snapshot()
        record_memory_history(None)
        for hook in self._hooks:
            hook.remove()
        self._running = False

    def _must_run(self, what: str) -> None:
        if not self._running:
            raise RuntimeError(f"{what} came after the recording ended: call it in the with block")

    def _events_counted(self) -> int:
        stats = torch.cuda.memory_stats_as_nested_dict(self.device)
        allocations = stats["allocation"]["all"]
        return int(allocations["allocated"] + allocations["freed"] + stats["num_ooms"])

    def _count(self) -> int:
        """Allocations, frees and failed requests since the recording began: this moment's name."""
        return self._events_counted() - self._counted_before

    def _look_around_step(self, *_: Any) -> None:
        self._look()

    def _look_at_graphs(self) -> None:
        """See what graphs keep on which no backward pass has begun."""
        self.saved(graph.saved_in(graph.roots_of_callers()))

    def _look(self) -> None:
        """Note the moment, torch's peak, and where the tensors of all watched objects are now."""
        self._counted = self._count()
        self._measured_peak_bytes = max(
            self._measured_peak_bytes, torch.cuda.max_memory_allocated(self.device)
        )
        names: dict[torch.Tensor, str] = {}
        for model in filter(None, (reference() for reference in self._models)):
            names |= {parameter: name for name, parameter in model.named_parameters()}
            for name, buffer in model.named_buffers():
                self._see(buffer, Category.BUFFERS, name)
        for optimizer in filter(None, (reference() for reference in self._optimizers)):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    names.setdefault(parameter, f"parameter {len(names)}")
            for parameter, state in optimizer.state.items():
                for key, tensor in named_tensors(state, names.get(parameter, "state")):
                    self._see(tensor, Category.OPTIMIZER_STATES, key)
        for parameter, name in names.items():
            self._see(parameter, Category.PARAMETERS, name)
            if parameter.grad is not None:
                self._see(parameter.grad, Category.GRADIENTS, f"{name}.grad")

    def _see(self, tensor: torch.Tensor, category: Category, label: str) -> None:
        for address in storage_addresses(tensor, self.device):
            self._sightings.append((self._counted, address, category, label))
