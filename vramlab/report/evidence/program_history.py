"""The memory history that a program asks for, beside the one that a report records.

PyTorch's allocator has one history. While a report needs it, what the program asks of
`torch.cuda.memory._record_memory_history` and `_snapshot` is answered from the report's: entries
from the program's start on, as many and of the kinds that it wants, with the frames that it wants.

Source: `recordHistory` and `record_trace` in c10/cuda/CUDACachingAllocator.cpp, and
`_record_memory_history` in torch/csrc/cuda/memory_snapshot.cpp, PyTorch 2.13.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from vramlab.allocator.history import SKIPPABLE
from vramlab.gpu.attached_gpus import ATTACHED
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.torch_internals import CUDA_FUNCTIONS, dump_snapshot, record_memory_history

Snapshot = Mapping[str, Any]
Took = Callable[[int, Sequence[Mapping[str, Any]]], None]

_RECORD = CUDA_FUNCTIONS["_cuda_record_memory_history"].at
_RECORD_LEGACY = (_RECORD[0], "_cuda_record_memory_history_legacy")
_SNAPSHOT = CUDA_FUNCTIONS["_cuda_memorySnapshot"].at

_CONTEXTS = (None, "state", "alloc", "all")


class ReportHistory:
    """PyTorch's history, recorded for a report.

    Args:
        took: receives the entries that are new, for each GPU by index, whenever it is read.
        stacks: which frames the report wants, `python` or `all`.

    Attributes:
        program: the history that the program has asked for.
    """

    def __init__(self, took: Took = lambda index, new: None, stacks: str = "all") -> None:
        self.program = ProgramHistory(self)
        self._took = took
        self._stacks = stacks
        self._taken: dict[int, int] = {}
        self._snapshot: Callable[..., Any] | None = None
        self._patches = Patches()
        self.is_recording = False

    def install(self) -> None:
        """Answer the program from now on."""
        if hasattr(*_SNAPSHOT):  # else a PyTorch without CUDA, and no virtual GPU
            self._snapshot = getattr(*_SNAPSHOT)
            self._answer()

    def remove(self) -> None:
        """Answer no more."""
        self._patches.undo()

    def _answer(self) -> None:
        self._patches.set(*_RECORD, self.program.record)
        self._patches.set(*_SNAPSHOT, self.program.snapshot)
        if hasattr(*_RECORD_LEGACY):
            self._patches.set(*_RECORD_LEGACY, self.program.record_legacy)

    def start(self, clear: bool = False) -> None:
        """Record, with frames of frees only where the program wants them.

        Args:
            clear: forget what was recorded.
        """
        context = "all" if self.program.context == "all" else "alloc"
        stacks = "all" if self.program.wants_all_frames else self._stacks
        self._patches.undo()
        try:
            record_memory_history("all", context=context, stacks=stacks, clear_history=clear)
        finally:
            self._answer()
        self.is_recording = True
        if clear:
            self._taken.clear()

    def read(self, keep: bool) -> Snapshot:
        """Read what is new.

        Args:
            keep: leave the history there.
        """
        assert self._snapshot is not None
        snapshot: Snapshot = self._snapshot(None)
        for index, trace in enumerate(snapshot["device_traces"]):
            new = trace[self._taken.get(index, 0) :]
            self._taken[index] = len(trace)
            self.program.take(index, new)
            self._took(index, new)
        if not keep:
            self.start(clear=True)
        return snapshot

    def of_pool(self, mempool_id: tuple[Any, ...]) -> Snapshot:
        """Read the segments of a pool; `(0, 0, False)`: all of them, without the history.

        Args:
            mempool_id: as PyTorch's `_cuda_memorySnapshot` has it.
        """
        assert self._snapshot is not None
        snapshot: Snapshot = self._snapshot(mempool_id)
        return snapshot

    def dump(self, path: str) -> None:
        """Write all of it to a file, as `torch.cuda.memory._dump_snapshot` does.

        Args:
            path: of the file.
        """
        self._patches.undo()
        try:
            dump_snapshot(path)
        finally:
            self._answer()


class ProgramHistory:
    """What the program has asked for.

    Args:
        report: where it comes from.

    Attributes:
        context: of the allocations and frees, as `_record_memory_history` has it.
        wants_all_frames: whether those of C++ are among them.
        was_started: whether the program has ever asked for a history.
    """

    def __init__(self, report: ReportHistory) -> None:
        self.context: str | None = None
        self.wants_all_frames = False
        self.was_started = False
        self._report = report
        self._enabled = False
        self._skipped: frozenset[str] = frozenset()
        self._max_entries = 1
        self._entries: dict[int, deque[dict[str, Any]]] = {}
        self._snapshots_to_come: set[int] = set()
        # Blocks whose frames PyTorch would have; whether those of C++ are among them.
        self._seen: dict[int, dict[int, bool]] = {}

    def record(
        self,
        enabled: str | None,
        context: str | None = None,
        stacks: str = "all",
        max_entries: int = sys.maxsize,
        clear_history: bool = False,
        compile_context: bool = False,
        global_record_annotations: bool = False,
        skip_actions: Iterable[str] = (),
        record_pinned_host_memory: bool = False,
        record_cuda: bool = True,
    ) -> None:
        """Start, change or stop the program's history.

        All arguments are those of PyTorch's function.

        Raises:
            RuntimeError: an option that PyTorch does not know.
        """
        for option, value, known in (
            ("state", enabled, (None, "state", "all")),
            ("context", context, _CONTEXTS),
            ("stacks", stacks, ("python", "all")),
        ):
            if value not in known:
                names = ", ".join(repr(each) for each in known if each)
                raise RuntimeError(f"expected {option} to be {names}, or None")
        enabled = enabled if record_cuda else None
        torch.cuda.init()
        self._report.read(keep=True)  # what was before is not the program's
        self.was_started = True
        self._enabled = enabled is not None
        self.context = context if enabled else None
        self.wants_all_frames = self._enabled and stacks == "all"
        self._skipped = SKIPPABLE.intersection(skip_actions)
        self._max_entries = max(1, max_entries) if enabled == "all" else 1
        if clear_history or not enabled:
            self._entries.clear()
        self._entries = {
            index: deque(entries, self._max_entries) for index, entries in self._entries.items()
        }
        self._report.start()

    def record_legacy(
        self,
        enabled: bool,
        record_context: bool = True,
        max_entries: int = 1,
        alloc_record_context: bool = False,
        record_context_cpp: bool = False,
        clear_history: bool = False,
        compile_context: bool = False,
        global_record_annotations: bool = False,
        skip_actions: Iterable[str] = (),
        record_pinned_host_memory: bool = False,
        record_cuda: bool = True,
    ) -> None:
        """Start or stop it as programs did before PyTorch 2.1.

        All arguments are those of PyTorch's function.
        """
        context = "alloc" if alloc_record_context else "state" if record_context else None
        stacks = "all" if record_context_cpp else "python"
        state = "all" if enabled else None
        self.record(
            state,
            context,
            stacks,
            max_entries,
            clear_history,
            skip_actions=skip_actions,
            record_cuda=record_cuda,
        )

    def take(self, index: int, entries: Iterable[Mapping[str, Any]]) -> None:
        """Take the entries of a GPU that are the program's, and note whose frames it has."""
        if not self.was_started:
            return
        kept = self._entries.setdefault(index, deque(maxlen=self._max_entries))
        seen = self._seen.setdefault(index, {})
        for entry in entries:
            action, address = entry["action"], entry.get("addr", 0)
            if action == "snapshot":
                if index not in self._snapshots_to_come:
                    continue  # the report's own
                self._snapshots_to_come.remove(index)
            if action == "alloc" and self.context:
                seen[address] = self.wants_all_frames
            elif action == "alloc":
                seen.pop(address, None)
            if self._enabled and action not in self._skipped:
                kept.append(self._entry(entry, seen.get(address)))
            if action == "free_completed":
                seen.pop(address, None)

    def _entry(self, entry: Mapping[str, Any], seen: bool | None) -> dict[str, Any]:
        own = dict(entry)
        # A free has the frames of its block's allocation, where frees have none of their own.
        of_block = self.context == "alloc" or ATTACHED.newest is not None
        is_free = entry["action"] in ("free_requested", "free_completed")
        if self.context not in ("alloc", "all") or (is_free and of_block and seen is None):
            own.pop("frames", None)
        elif "frames" in own:
            has_all = seen if is_free and of_block else self.wants_all_frames
            own["frames"] = _frames(own["frames"], has_all)
        return own

    def snapshot(self, mempool_id: tuple[Any, ...] | None = None) -> Any:
        """Make what `torch.cuda.memory._snapshot()` and `memory_snapshot()` return.

        Args:
            mempool_id: as PyTorch's function has it.
        """
        torch.cuda.init()
        whole = self._report.read(keep=True)
        snapshot = {**whole} if mempool_id is None else {**self._report.of_pool(mempool_id)}
        if self._enabled:
            # PyTorch records the snapshot as well, after the traces that are in it.
            self._snapshots_to_come = set(range(len(whole["device_traces"])))
        if snapshot["device_traces"]:
            indices = range(len(snapshot["device_traces"]))
            snapshot["device_traces"] = [self._copies(index) for index in indices]
        for segment in snapshot["segments"]:
            self._hide_frames(segment)
        return snapshot

    def _copies(self, index: int) -> list[dict[str, Any]]:
        return [{**each} for each in self._entries.get(index, ())]  # the program may change them

    def _hide_frames(self, segment: dict[str, Any]) -> None:
        """Leave the frames that PyTorch would have: of blocks that the program has recorded."""
        seen = self._seen.get(segment["device"], {})
        address = segment["address"]
        of_segment: bool | None = None
        for block in segment["blocks"]:
            has_all = seen.get(block.get("address", address))
            of_segment = has_all if of_segment is None else of_segment
            if "frames" in block:
                block["frames"] = _frames(block["frames"], has_all)
            address += block["size"]
        if "frames" in segment:
            segment["frames"] = _frames(segment["frames"], of_segment)


def _frames(frames: Sequence[Mapping[str, Any]], has_all: bool | None) -> list[Mapping[str, Any]]:
    """Return the frames that a program would find: all, those of Python, or none."""
    if has_all is None:
        return []
    return [each for each in frames if has_all or each["filename"].endswith((".py", ">"))]
