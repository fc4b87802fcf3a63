"""Report a run while it goes on, and at its end: on a stream, as JSON, and as a snapshot."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from vramlab import streams
from vramlab.progress import working
from vramlab.report.collect import RunningEngine, summarize
from vramlab.report.evidence.history import keep_histories
from vramlab.report.evidence.other_settings import (
    RequestTape,
    Trial,
    settings_table,
    try_settings,
)
from vramlab.report.evidence.program_history import ReportHistory
from vramlab.report.evidence.watch import Watch
from vramlab.report.running.children import Children
from vramlab.report.running.processes import Processes
from vramlab.report.running.program import Ending
from vramlab.report.showing.page import write_page
from vramlab.report.showing.shown import as_shown
from vramlab.report.showing.verdict import steps_done
from vramlab.units import format_bytes


@dataclass(frozen=True)
class Files:
    """Paths of what is written beside the report; None: nothing is."""

    json: str | None = None
    """The report as JSON."""
    html: str | None = None
    """The report as a page, with a timeline."""
    snapshot: str | None = None
    """A snapshot of every allocation."""


class Reporter:
    """Reports one run.

    Args:
        engine: what the program runs on, and what is seen of it.
        children: the programs that it starts.
        processes: the processes that it starts by `multiprocessing`.
        command: the program's command line.
        folder: where it is started.
        stream: where the report goes.
        files: where it goes besides.
        options: of `vramlab run`, but the GPU; for commands that the report names.
        try_allocator: show the run's allocations under other allocator settings; for a `Watch`.
    """

    def __init__(
        self,
        engine: RunningEngine,
        children: Children,
        processes: Processes,
        command: str,
        folder: str,
        stream: Any,
        files: Files,
        *,
        options: Sequence[str] = (),
        try_allocator: bool = False,
    ) -> None:
        self._engine = engine
        self._watch = engine.watch
        self._children = children
        self._processes = processes
        self._command = command
        self._options = shlex.join(options) and f" {shlex.join(options)}"
        self._folder = folder
        self._stream = stream
        self._files = files
        self._try_allocator = try_allocator
        self._tapes: list[RequestTape] = []
        self._history = (
            ReportHistory(stacks="python")
            if isinstance(self._watch, Watch)
            else self._watch.history
        )
        self._began = time.perf_counter()

    def begin(self) -> None:
        """Note that the program begins now. The GPU is attached."""
        for path in filter(None, astuple(self._files)):
            with suppress(FileNotFoundError):
                os.remove(path)  # an earlier run's
        if self._files.html:
            keep_histories(self._watch.devices)
        if self._files.snapshot and isinstance(self._watch, Watch):  # the other one has a history
            self._history.install()
            self._history.start()
        if self._try_allocator and isinstance(self._watch, Watch):
            self._tapes = [RequestTape(allocator) for allocator in self._watch.allocators]
        self._began = time.perf_counter()

    def progress(self) -> str:
        """Describe how far the program is, and what it has needed; from another thread."""
        if self._children.count:
            return f"waiting for the processes it started ({self._children.count})"
        done = steps_done(self._watch.steps.counts)
        return f"{done}; {self._needed()} on {self._engine.gpu} (virtual)"

    def _needed(self) -> str:
        """Describe how much the fullest of the GPUs has needed until now."""
        reserved_bytes = [device.reserved_until_now_bytes for device in self._watch.devices]
        index = reserved_bytes.index(max(reserved_bytes))
        device = self._engine.devices()[index]
        if not device.context_bytes:
            return "no GPU memory used"
        needed = format_bytes(reserved_bytes[index] + device.context_bytes)
        return f"cuda:{index} peak {needed} of {format_bytes(device.total_bytes)}"

    def report(self, ending: Ending) -> None:
        """Write the report of a program with this ending. The GPU is still attached."""
        seconds = time.perf_counter() - self._began
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the program may have replaced or closed it
                stream.flush()
        files = self._own_files()
        if files.snapshot:
            self._history.dump(files.snapshot)
            if isinstance(self._watch, Watch):
                self._history.remove()
        with working("preparing the report", self._stream):
            self._watch.look_everywhere()
            summary = summarize(
                self._engine.ground(), self._watch, self._command, self._folder, ending, seconds
            )
            summary = replace(summary, child_count=self._child_count())
        tried = self._tried_settings()
        if files.json:
            data = summary.to_dict()
            if self._try_allocator:
                data["allocator_trials"] = [
                    {"device": index, **asdict(trial)}
                    for index, trials in tried.items()
                    for trial in (trials if isinstance(trials, list) else ())
                ]
            with open(files.json, "w", encoding="utf-8") as file:
                json.dump(data, file, indent=2, ensure_ascii=False)
        if files.html:
            write_page(files.html, summary, self._watch.devices)
        streams.write(
            f"\n{as_shown(summary, self._stream)}\n", self._stream, sys.stderr, sys.__stderr__
        )

        if self._try_allocator:
            text = "\n\n".join(self._settings_text(tried))
            streams.write(f"\n{text}\n", self._stream, sys.stderr, sys.__stderr__)
        if summary.ended_out_of_memory and not summary.rank:
            text = "\n".join(self._next_commands())
            streams.write(f"\n{text}\n", self._stream, sys.stderr, sys.__stderr__)

    def _next_commands(self) -> Iterator[str]:
        """Name the commands that find out what would help."""
        yield "To find out what would help:"
        path = self._files.snapshot or "snapshot.pickle"
        if not self._files.snapshot:
            options = f"--gpu {shlex.quote(self._engine.gpu)}{self._options} --snapshot {path}"
            yield f"  vramlab run {options} {self._command}"
        yield f"  vramlab explain {path}   # tries changes to the program and the allocator"
        yield f"  vramlab run --gpu all{self._options} {self._command}   # which GPUs are enough"

    def _tried_settings(self) -> dict[int, list[Trial] | str]:
        """Replay the run of each GPU that was used under other allocator settings, by index."""
        if not isinstance(self._watch, Watch):
            return {}
        tried: dict[int, list[Trial] | str] = {}
        with working("replaying the run's allocations", self._stream) as step:
            for index, tape in enumerate(self._tapes):
                if tape.count:
                    tried[index] = try_settings(
                        tape,
                        self._watch.allocators[index],
                        self._watch.devices[index].peak_reserved_bytes,
                        self._watch.precedence,
                        step.tell,
                    )
        return tried

    def _settings_text(self, tried: dict[int, list[Trial] | str]) -> Iterator[str]:
        if not tried:
            yield (
                "--try-allocator: nothing to replay, because this process allocated nothing on a "
                "GPU (processes that it starts are not replayed)."
            )
        for index, trials in tried.items():
            if isinstance(trials, str):
                yield f"--try-allocator: cannot replay cuda:{index}: {trials}."
            else:
                tape = self._tapes[index]
                yield str(settings_table(index, tape, trials, self._engine.gpu))

    def _child_count(self) -> int:
        return self._children.count + self._processes.reported

    def _own_files(self) -> Files:
        """Return the files to write: without GPU use here, those of the first child stay."""
        used = any(device.context_bytes for device in self._engine.devices())
        if used or not self._child_count():
            return self._files
        return Files(
            *(path and (None if os.path.exists(path) else path) for path in astuple(self._files))
        )
