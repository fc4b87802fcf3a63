"""The virtual GPU against a recording: equal to the byte, or the difference is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_entries import EXPERIMENT, GPU, INFERENCE, TRAINING, Recorder

from vramlab.cli import main
from vramlab.recordings.entries import trace_group
from vramlab.recordings.known import KNOWN, OUTCOME, QUANTITIES, known_difference
from vramlab.recordings.store import RecordedEntry, RecordingFile
from vramlab.recordings.virtual_counterpart import gpu_model

Capture = pytest.CaptureFixture[str]


def tamper_with_stage(recording: RecordingFile, name: str, stage: str, **changes: int) -> None:
    entry = recording.entries[name]
    stages = tuple(replace(s, **changes) if s.name == stage else s for s in entry.stages)
    recording.put(name, replace(entry, stages=stages))


def tamper_with_trace(
    recording: RecordingFile, name: str, change: Callable[[dict[str, Any]], None]
) -> None:
    line = recording.read_traces()[name]
    change(line["trace"])
    recording.put(name, recording.entries[name], line, trace_group(name))


def test_a_virtual_recording_is_equal_to_the_byte(
    make_recording: Recorder, capsys: Capture
) -> None:
    recording = make_recording([TRAINING, EXPERIMENT])
    assert main(["compare", str(recording.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    numbers = 4 * sum(len(entry.stages) for entry in recording.entries.values())
    assert lines == [
        f"{TRAINING}: equal",
        f"{EXPERIMENT}: equal",
        f"equal to the byte: 2 of 2 entries, {numbers} of {numbers} numbers",
    ]


def test_what_traces_tell_is_equal_too(make_recording: Recorder, capsys: Capture) -> None:
    recording = make_recording([TRAINING])
    assert main(["compare", str(recording.path), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert entry["divergence"] is None
    assert entry["statistics"] == []
    assert entry["equal"] is True


def test_a_stage_that_differs_is_named(make_recording: Recorder, capsys: Capture) -> None:
    recording = make_recording([TRAINING])
    (forward,) = [s for s in recording.entries[TRAINING].stages if s.name == "forward 2"]
    recorded = forward.peak_bytes + 4096
    tamper_with_stage(recording, TRAINING, "forward 2", peak_bytes=recorded)
    assert main(["compare", str(recording.path)]) == 1
    printed = capsys.readouterr().out
    assert f"{TRAINING}: 1 of" in printed
    assert (
        f"    forward 2: peak: {recorded:,} B recorded, {forward.peak_bytes:,} B virtual: -4,096 B"
    ) in printed
    assert f"worst: {TRAINING}, peak of 'forward 2': {-4096 / recorded:+.2%} (-4,096 B)" in printed
    assert f"unexplained differences: 1: {TRAINING}" in printed


def test_the_allocation_that_differs_is_named(make_recording: Recorder, capsys: Capture) -> None:
    recording = make_recording([TRAINING])
    tamper_with_stage(recording, TRAINING, "backward 1", allocated_bytes=1)
    weight_bytes = 1024 * 1024 * 4

    def enlarge(trace: dict[str, Any]) -> None:
        """Let the first weight's gradient have been 4 B larger."""
        stages = [stage for stage, events in trace["stages"] for _ in range(events)]
        sized = [number for number, code in enumerate(trace["actions"]) if code not in "fc"]
        for position, number in enumerate(sized):
            is_gradient = (stages[number], trace["actions"][number]) == ("backward 1", "a")
            if is_gradient and trace["size"][position] == weight_bytes:
                trace["size"][position] += 4
                return

    tamper_with_trace(recording, TRAINING, enlarge)
    assert main(["compare", str(recording.path)]) == 1
    printed = capsys.readouterr().out
    assert "first difference in the traces: stage 'backward 1', event " in printed
    assert "another size" in printed
    assert "recorded: alloc 4,194,308 B at segment" in printed
    assert "virtual:  alloc 4,194,304 B at segment" in printed
    assert "mm, in AddmmBackward0" in printed
    assert "only recorded: 1 x 4,194,308 B: mm, in AddmmBackward0" in printed
    assert "only virtual: 1 x 4,194,304 B: mm, in AddmmBackward0" in printed


def test_a_known_difference_does_not_fail(
    make_recording: Recorder, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = replace(KNOWN[0], name="test-only", entries=(TRAINING,), quantities=("peak",))
    elsewhere = replace(known, entries=("zoo/elsewhere",))
    monkeypatch.setattr("vramlab.recordings.known.KNOWN", (known, elsewhere))
    recording = make_recording([TRAINING])
    tamper_with_stage(recording, TRAINING, "forward 1", peak_bytes=2**30)
    assert main(["compare", str(recording.path)]) == 0
    printed = capsys.readouterr().out
    assert "[test-only]" in printed
    assert printed.count(f"known difference test-only: {known.why}") == 1
    tamper_with_stage(recording, TRAINING, "forward 1", allocated_bytes=1)
    assert main(["compare", str(recording.path)]) == 1


def test_known_differences_name_entries_and_quantities_that_exist() -> None:
    from vramlab.recordings.entries import all_entries, select

    for known in KNOWN:
        for pattern in known.entries:
            assert select(all_entries(), [pattern])
        assert set(known.quantities) <= {*QUANTITIES, OUTCOME}
    vgg = known_difference("zoo/vgg16-b16-fp32-sgd", "forward 1", "peak")
    assert vgg is not None
    assert vgg.name == "convolution-workspace"
    assert known_difference("zoo/vgg16-b16-fp32-sgd", "forward 1", OUTCOME) is None
    assert known_difference("zoo/gpt2-b8", "forward 1", "peak") is None


def test_other_stages_and_other_endings_are_differences(
    make_recording: Recorder, capsys: Capture
) -> None:
    recording = make_recording([INFERENCE, EXPERIMENT])
    for name, change in (
        (INFERENCE, lambda stages: stages[:-1]),
        (EXPERIMENT, lambda stages: (replace(stages[0], error="OutOfMemoryError"), *stages[1:])),
    ):
        entry = recording.entries[name]
        recording.put(name, replace(entry, stages=change(entry.stages)))
    assert main(["compare", str(recording.path)]) == 1
    printed = capsys.readouterr().out
    assert f"{INFERENCE}: stage 'del outputs' did not run recorded, ended well" in printed
    assert "ended in OutOfMemoryError recorded, ended well virtual" in printed


def test_stages_in_another_order_are_a_difference(
    make_recording: Recorder, capsys: Capture
) -> None:
    recording = make_recording([INFERENCE])
    entry = recording.entries[INFERENCE]
    stages = tuple(reversed(entry.stages))
    recording.put(INFERENCE, replace(entry, stages=stages))
    assert main(["compare", str(recording.path)]) == 1
    orders = [", ".join(stage.name for stage in order) for order in (stages, entry.stages)]
    assert (
        f"{INFERENCE}: has its stages in another order: {orders[0]} recorded, {orders[1]} virtual"
    ) in capsys.readouterr().out


def test_a_number_that_differs_by_where_segments_lie_is_named(
    make_recording: Recorder, capsys: Capture
) -> None:
    recording = make_recording([TRAINING])
    line = recording.read_traces()[TRAINING]
    entry = recording.entries[TRAINING]
    first, *others = entry.stages
    # The last allocation lies in another segment: as many bytes, given back at the same time.
    place = [list(each) for each in line["trace"]["place"]]
    place[-1][0] += 1
    line = {**line, "trace": {**line["trace"], "place": place}}
    changed = replace(first, reserved_bytes=first.reserved_bytes + 2**20)
    recording.put(TRAINING, replace(entry, stages=(changed, *others)), line, "vision")
    assert main(["compare", str(recording.path)]) == 0
    assert "[segment-order]" in capsys.readouterr().out


def test_what_failed_is_skipped_and_what_cannot_run_is_a_difference(
    make_recording: Recorder, capsys: Capture
) -> None:
    recording = make_recording([])
    recording.put(TRAINING, RecordedEntry("timeout", 180.0, error="it still ran after 180 s"))
    assert main(["compare", str(recording.path)]) == 0
    assert "skipped: 1" in capsys.readouterr().out
    recording.put("zoo/gone", RecordedEntry("ok", 1.0))
    assert main(["compare", str(recording.path)]) == 1
    assert "does not run there: UnknownWorkloadError" in capsys.readouterr().out


def test_two_recordings_are_compared_and_nothing_runs(
    make_recording: Recorder, tmp_path: Path, capsys: Capture
) -> None:
    recording = make_recording([TRAINING])
    folder = tmp_path / "other"
    shutil.copytree(recording.path.parent, folder)
    other = RecordingFile.open(folder / recording.path.name)
    words = ["compare", str(recording.path), "--with", str(other.path)]
    assert main(words) == 0
    assert f"{TRAINING}: equal" in capsys.readouterr().out
    stage = other.entries[TRAINING].stages[-1]
    tamper_with_stage(other, TRAINING, stage.name, peak_bytes=stage.peak_bytes + 512)
    main(words)
    assert "1 of " in capsys.readouterr().out
    other.put(TRAINING, RecordedEntry("failed", 1.0, error="it was refused"))
    assert main(words) == 1
    assert f"{other.path.name} has no result of it: it was refused" in capsys.readouterr().out


def test_the_twin_has_the_recorded_sizes(make_recording: Recorder) -> None:
    recording = make_recording(["context"])
    recording.machine["properties"]["total_memory"] = 40 * 2**30
    recording.machine["properties"]["multi_processor_count"] = 7
    model = gpu_model(recording)
    assert model.name == GPU
    assert (model.total_bytes, model.multiprocessors) == (40 * 2**30, 7)
    (idle,) = [
        m for m in recording.entries["context"].moments or () if m["moment"] == "synchronize"
    ]
    assert model.context_bytes == idle["used_bytes"]
    assert model.sources["total_bytes"] == f"recording {recording.path.name}"


def test_a_gpu_that_nobody_knows_gets_a_model_of_its_own(
    make_recording: Recorder, capsys: Capture
) -> None:
    recording = make_recording([INFERENCE])
    recording.machine["gpu"] = recording.machine["properties"]["name"] = "NVIDIA Unheard-of 9000"
    recording.put(INFERENCE, recording.entries[INFERENCE])
    model = gpu_model(recording)
    assert model.name == model.product_name == "NVIDIA Unheard-of 9000"
    assert model.compute_capability == (8, 0)
    assert main(["compare", str(recording.path)]) == 0
    assert f"{INFERENCE}: equal" in capsys.readouterr().out


# ---- what the native engine computed, kept without traces ----


def computed(recording: RecordingFile, folder: Path) -> RecordingFile:
    """The same as if the native engine had recorded it, and its numbers kept."""
    as_native = replace(recording, machine={**recording.machine, "engine": "native"})
    return RecordingFile.open(as_native.keep_numbers(folder))


def rewrite(recording: RecordingFile, name: str, **changes: Any) -> None:
    """Change an entry of kept numbers, in its file."""
    recording.entries[name] = replace(recording.entries[name], **changes)
    recording.keep_numbers(recording.path.parent)


def test_kept_numbers_are_the_recordings_and_small(
    make_recording: Recorder, tmp_path: Path, capsys: Capture
) -> None:
    recording = make_recording([TRAINING])
    kept = computed(recording, tmp_path / "computed")
    assert kept.is_computed
    assert not recording.is_computed
    stages = [replace(stage, error=None) for stage in recording.entries[TRAINING].stages]
    assert list(kept.entries[TRAINING].stages) == stages
    files = [path.name for path in kept.path.parent.iterdir()]
    assert files == [f"{recording.path.name}.gz"]  # and no traces
    assert kept.path.stat().st_size < recording.path.stat().st_size
    assert main(["compare", str(kept.path)]) == 0
    assert "equal to the byte: 1 of 1 entries" in capsys.readouterr().out


def test_numbers_are_kept_beside_those_of_other_entries_of_the_same_machine(
    make_recording: Recorder, tmp_path: Path
) -> None:
    both = make_recording([TRAINING, INFERENCE])
    first = replace(both, entries={TRAINING: both.entries[TRAINING]})
    second = replace(both, entries={INFERENCE: both.entries[INFERENCE]})
    computed(first, tmp_path)
    assert list(computed(second, tmp_path).entries) == [TRAINING, INFERENCE]
    other = replace(second, machine={**second.machine, "cudnn": 99999})
    assert list(computed(other, tmp_path).entries) == [INFERENCE]


def test_kept_numbers_name_a_difference_of_places_alone(
    make_recording: Recorder, tmp_path: Path, capsys: Capture
) -> None:
    """The digest of requests stands for the trace: with it, only where segments lie can differ."""
    kept = computed(make_recording([TRAINING]), tmp_path / "computed")
    entry = kept.entries[TRAINING]
    stages = tuple(replace(stage, reserved_bytes=1) for stage in entry.stages)
    rewrite(kept, TRAINING, stages=stages)
    assert main(["compare", str(kept.path)]) == 0
    assert "[segment-order]" in capsys.readouterr().out
    rewrite(kept, TRAINING, stages=stages, requests="0" * 16)
    assert main(["compare", str(kept.path)]) == 1
    assert f"unexplained differences: 1: {TRAINING}" in capsys.readouterr().out


def test_another_block_in_use_is_no_difference_of_places(
    make_recording: Recorder, tmp_path: Path, capsys: Capture
) -> None:
    """1 GiB more in use at a stage's end: more than would be left of any block unsplit."""
    kept = computed(make_recording([TRAINING]), tmp_path / "computed")
    *others, last = kept.entries[TRAINING].stages
    changed = replace(last, allocated_bytes=last.allocated_bytes + 2**30)
    rewrite(kept, TRAINING, stages=(*others, changed))
    assert main(["compare", str(kept.path)]) == 1
    assert "[segment-order]" not in capsys.readouterr().out


def test_what_pytorch_refuses_is_to_be_refused_alike(
    make_recording: Recorder, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = computed(make_recording([TRAINING]), tmp_path / "computed")
    error = "OutOfMemoryError: CUDA out of memory"
    rewrite(kept, TRAINING, status="failed", error=error, stages=(), requests=None)
    assert main(["compare", str(kept.path)]) == 1
    assert f"{TRAINING}: runs there, and did not here: {error}" in capsys.readouterr().out

    def out_of_memory(name: str) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr("vramlab.recordings.measuring.measure", out_of_memory)
    assert main(["compare", str(kept.path)]) == 0
    rewrite(kept, TRAINING, error="RuntimeError: cuDNN error (vramlab's substitute)")
    assert main(["compare", str(kept.path)]) == 0
    assert "skipped, recorded as failed" in capsys.readouterr().out
