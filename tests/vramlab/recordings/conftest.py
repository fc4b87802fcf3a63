"""Recordings of virtual GPUs, made in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from recorded_entries import GPU, TORCH, Recorder

from vramlab.gpu import VirtualGPU
from vramlab.recordings.entries import trace_group
from vramlab.recordings.machine import describe_machine
from vramlab.recordings.measuring import measure
from vramlab.recordings.store import RecordedEntry, RecordingFile
from vramlab.recordings.worker import as_data


@pytest.fixture
def make_recording(tmp_path: Path) -> Recorder:
    """Record entries of a virtual GPU as `vramlab record` does, without its processes."""

    def make(names: Sequence[str]) -> RecordingFile:
        with VirtualGPU(GPU, torch_version=TORCH):
            recording = RecordingFile.open_or_new(tmp_path, describe_machine())
        for name in names:
            with VirtualGPU(GPU, torch_version=TORCH):
                answer = as_data(measure(name))
            traces = {key: answer[key] for key in ("trace", "statistics")}
            recording.put(name, RecordedEntry.from_dict(answer["entry"]), traces, trace_group(name))
        return recording

    return make
