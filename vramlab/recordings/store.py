"""A recording's files: one of readable numbers, and compressed traces beside it.

    h200-torch2.11.0.json                           the machine, and per entry its stages
    h200-torch2.11.0.experiments.trace.json.gz      per entry its trace and memory_stats()
    h200-torch2.11.0.text.trace.json.gz             ...
    computed/t4-torch2.13.0.json.gz                 of the native engine: no GPU was measured


A trace file holds a gzip member with one line of JSON for each entry. Files are replaced whole:
whatever happens while one is written, the one before is still there.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vramlab import catalogue
from vramlab.errors import UnknownGPUError, VramlabError
from vramlab.recordings.alignment import requests_digest
from vramlab.recordings.trace import Trace, TraceError

FORMAT = "vramlab recording 1"

SAME_MACHINE = ("gpu", "virtual", "torch", "properties", "driver", "cudnn", "transformers")
"""What has to be equal for entries to go into one recording."""

OK = "ok"
FAILED = "failed"
SKIPPED = "skipped"
"""Of an entry that needs more GPUs than there are."""

Writer = Callable[[Path, bytes], None]


class RecordingError(VramlabError):
    """A recording cannot be read, written, or added to."""


@dataclass(frozen=True)
class RecordedStage:
    """Measurements of one stage, in bytes."""

    name: str
    """Unique in its entry."""
    allocated_bytes: int
    """At its end."""
    peak_bytes: int
    """Highest allocated bytes while it ran."""
    reserved_bytes: int
    """At its end."""
    peak_reserved_bytes: int
    device_used_bytes: int
    """On the whole device at its end; 0 before CUDA."""
    error: str | None = None
    """If it ended in an exception that the entry expected."""


@dataclass(frozen=True)
class RecordedEntry:
    """Measurements of one entry, or why there are none."""

    status: str
    """'ok', 'skipped', 'failed' or 'timeout'."""
    seconds: float
    stages: tuple[RecordedStage, ...] = ()
    error: str | None = None
    """Why it failed or was skipped."""
    outcome: Mapping[str, Any] | None = None
    """Of an experiment: what it found."""
    moments: tuple[Mapping[str, Any], ...] | None = None
    """Of the context."""
    trace_error: str | None = None
    """Why it has no trace, if it has none."""
    requests: str | None = None
    """`alignment.requests_digest` of a trace that was not kept."""

    @property
    def is_refused_by_torch(self) -> bool:
        """Return whether PyTorch ended it with an error: out of memory, or no such kernel.

        What the native engine has no meaning for is none of PyTorch's: its message says so. Neither
        is an object that cannot be unpickled, because no other rank has sent it.
        """
        error = self.error or ""
        return self.status == FAILED and not ("vramlab" in error or "UnpicklingError" in error)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data; a stage is a list in the order of `RecordedStage`'s fields."""
        data: dict[str, Any] = {"status": self.status, "seconds": self.seconds}
        if self.error is not None:
            data["error"] = self.error
        data["stages"] = [list(vars(stage).values()) for stage in self.stages]
        if self.outcome is not None:
            data["outcome"] = self.outcome
        if self.moments is not None:
            data["moments"] = list(self.moments)
        if self.trace_error is not None:
            data["trace_error"] = self.trace_error
        if self.requests is not None:
            data["requests"] = self.requests
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RecordedEntry:
        """Read what `to_dict` wrote."""
        moments = data.get("moments")
        return cls(
            status=data["status"],
            seconds=data["seconds"],
            stages=tuple(RecordedStage(*stage) for stage in data["stages"]),
            error=data.get("error"),
            outcome=data.get("outcome"),
            moments=None if moments is None else tuple(moments),
            trace_error=data.get("trace_error"),
            requests=data.get("requests"),
        )


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole, or as it was before.

    Raises:
        OSError: it could not be written, for example because the disk is full.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@dataclass
class RecordingFile:
    """A recording, in memory and on disk.

    Attributes:
        path: of the readable file.
        machine: see `machine.describe_machine`.
        entries: what is recorded so far, by id.
    """

    path: Path
    machine: dict[str, Any]
    entries: dict[str, RecordedEntry] = field(default_factory=dict)
    writer: Writer = replace_file

    @classmethod
    def open(cls, path: Path, writer: Writer = replace_file) -> RecordingFile:
        """Read a recording.

        Raises:
            RecordingError: there is none, or the file is something else.
        """
        try:
            content = path.read_bytes()
            data = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
        except FileNotFoundError:
            raise RecordingError(
                f"can't open {str(path)!r}: no such file; create a recording with `vramlab record`"
            ) from None
        except (ValueError, OSError, EOFError, zlib.error) as error:
            raise RecordingError(
                f"{path} is not a recording ({getattr(error, 'strerror', None) or error}): create "
                "one with `vramlab record`; if this one was damaged, delete it first"
            ) from None
        found = data.get("format") if isinstance(data, dict) else None
        if found != FORMAT:
            raise RecordingError(
                f"{path} is no recording that this version reads: its format is {found!r}, not "
                f"{FORMAT!r}"
            )
        try:
            entries = {
                name: RecordedEntry.from_dict(entry) for name, entry in data["entries"].items()
            }
            return cls(path, dict(data["machine"]), entries, writer)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise RecordingError(
                f"{path} is a damaged recording ({error!r}); move it away and record again"
            ) from None

    @classmethod
    def open_or_new(
        cls, folder: Path, machine: dict[str, Any], writer: Writer = replace_file
    ) -> RecordingFile:
        """Return the recording of a machine in a folder, to be added to.

        Raises:
            RecordingError: the file there is of another machine, driver or library, or is none.
        """
        path = folder / f"{file_stem(machine)}.json"
        if not path.exists():
            return cls(path, machine, {}, writer)
        recording = cls.open(path, writer)
        different = recording._other_conditions(machine)
        if different:
            raise RecordingError(
                f"{path} was recorded under other conditions, and one recording holds those of one "
                f"machine: {'; '.join(different)}. Give another folder with --out, or move it away"
            )
        return recording

    def _other_conditions(self, machine: Mapping[str, Any]) -> list[str]:
        """Return what another machine has otherwise, in words; nothing: entries may be added."""
        return [
            f"{key}: {self.machine.get(key)!r} there, {machine.get(key)!r} here"
            for key in SAME_MACHINE
            if self.machine.get(key) != machine.get(key)
        ]

    @property
    def is_computed(self) -> bool:
        """Return whether PyTorch's host code computed it on the native engine, and no GPU did."""
        return self.machine.get("engine") == "native"

    def put(
        self,
        name: str,
        entry: RecordedEntry,
        trace: Mapping[str, Any] | None = None,
        group: str = "experiments",
    ) -> None:
        """Add an entry, its trace first, and write both to disk.

        Args:
            trace: what `read_traces` is to find again: 'trace' and 'statistics'.
            group: which trace file it goes to.

        Raises:
            RecordingError: they could not be written; what was there before still is.
        """
        before = self.entries.get(name)
        self.entries[name] = entry
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if trace is not None:
                self._put_trace(name, trace, self._trace_path(group))
            self.writer(self.path, self._text().encode())
        except OSError as error:
            if before is None:
                del self.entries[name]
            else:
                self.entries[name] = before
            done = sum(entry.status == OK for entry in self.entries.values())
            raise RecordingError(
                f"could not write {name} to {self.path} ({error.strerror or error}); what was "
                f"recorded before it, {done} entries, is kept: run the same command again to go on"
            ) from error

    def read_traces(self, names: Collection[str] | None = None) -> dict[str, dict[str, Any]]:
        """Read what `put` was given as `trace`, by entry, from all trace files.

        Args:
            names: of the entries that are wanted; by default all. A whole recording is a hundred
                million characters of JSON: what is not wanted is not parsed.

        Raises:
            RecordingError: a file is damaged.
        """
        found: dict[str, dict[str, Any]] = {}
        for path in sorted(self.path.parent.glob(f"{self.path.stem}.*.trace.json.gz")):
            for line in _lines(path, names):
                found[line.pop("id")] = line
        return found

    def keep_numbers(self, folder: Path) -> Path:
        """Write it into a folder without its traces, compressed; the file's path.

        What differs from one run to the next is left out: seconds, details of messages. What is
        there already of the same machine, and not in this recording, stays.
        """
        traces = self.read_traces()

        def numbers_of(name: str, entry: RecordedEntry) -> RecordedEntry:
            stages = (replace(each, error=_short(each.error)) for each in entry.stages)
            return replace(
                entry,
                seconds=0,
                stages=tuple(stages),
                error=_short(entry.error),
                outcome=None,
                requests=requests_digest(trace_of(traces[name]))
                if name in traces
                else entry.requests,
            )

        entries = {name: numbers_of(name, entry) for name, entry in self.entries.items()}
        path = folder / f"{file_stem(self.machine)}.json.gz"
        before = RecordingFile.open(path) if path.exists() else None
        if before is not None and not before._other_conditions(self.machine):
            entries = before.entries | entries
        kept = RecordingFile(path, self.machine, entries)
        folder.mkdir(parents=True, exist_ok=True)
        self.writer(kept.path, gzip.compress(kept._text().encode(), mtime=0))
        return kept.path

    def _trace_path(self, group: str) -> Path:
        return self.path.with_name(f"{self.path.stem}.{group}.trace.json.gz")

    def _put_trace(self, name: str, trace: Mapping[str, Any], path: Path) -> None:
        lines = list(_lines(path)) if path.exists() else []
        new = {"id": name, **trace}
        if any(line["id"] == name for line in lines):
            kept = [line for line in lines if line["id"] != name]
            self.writer(path, b"".join(map(_member, [*kept, new])))
        else:
            before = path.read_bytes() if lines else b""
            self.writer(path, before + _member(new))

    def _text(self) -> str:
        """JSON, one entry on each line, so that differences between versions can be read."""
        lines = [
            f"  {json.dumps(name)}: {json.dumps(entry.to_dict(), ensure_ascii=False)}"
            for name, entry in self.entries.items()
        ]
        machine = json.dumps(self.machine, indent=1, ensure_ascii=False)
        entries = ",\n".join(lines)
        return (
            f'{{\n"format": {json.dumps(FORMAT)},\n"machine": {machine},\n'
            f'"entries": {{\n{entries}\n}}\n}}\n'
        )


def _short(error: str | None) -> str | None:
    """Return an error's name, and the first sentence of what it said."""
    return None if error is None else error.splitlines()[0].partition(". ")[0]


def file_stem(machine: Mapping[str, Any]) -> str:
    """Name a machine's recording, without suffix: 'h200-torch2.11.0'."""
    try:
        gpu = catalogue.find(machine["gpu"]).name
    except UnknownGPUError:
        gpu = machine["gpu"]
    gpu = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")
    torch_version = machine["torch"].partition("+")[0]
    return f"{'virtual-' if machine['virtual'] else ''}{gpu}-torch{torch_version}"


def trace_of(line: Mapping[str, Any]) -> Trace:
    """Return the trace in what `read_traces` gives.

    Raises:
        RecordingError: it is damaged.
    """
    try:
        return Trace.from_dict(line["trace"])
    except (KeyError, TraceError) as error:
        raise RecordingError(f"a trace of this recording is damaged: {error}") from error


def _beginning(name: str) -> bytes:
    """Return what an entry's line begins with: its id comes first."""
    return _json({"id": name}).removesuffix(b"}") + b","


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def _member(line: Mapping[str, Any]) -> bytes:
    return gzip.compress(_json(line) + b"\n", compresslevel=9, mtime=0)


def _lines(path: Path, names: Collection[str] | None = None) -> list[dict[str, Any]]:
    """Parse the lines of a trace file; with `names`, those of these entries only."""
    wanted = b"" if names is None else tuple(map(_beginning, names))
    try:
        with gzip.open(path) as file:
            lines = [
                json.loads(line)
                for line in file
                if line.startswith(wanted) or not line.startswith(b'{"id":"')
            ]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise RecordingError(
            f"{path} is no trace file, or damaged ({error}); move it away and record again "
            "with --again"
        ) from None
    if not all(isinstance(line, dict) and "id" in line for line in lines):
        raise RecordingError(f"{path} is no trace file of a recording")
    return lines
