"""Cases from recordings: from stages made by hand, and from a recording of a virtual GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.estimates.cases import RECORDING
from benchmarks.estimates.recorded import (
    numbers,
    on_the_virtual_gpu,
    recorded_cases,
    recordings,
    zoo_programs,
)
from benchmarks.estimates.scores import Comparison, score
from vramlab import VirtualGPU, zoo
from vramlab.recordings.machine import describe_machine
from vramlab.recordings.measuring import measure
from vramlab.recordings.store import RecordedEntry, RecordedStage, RecordingFile
from vramlab.recordings.worker import as_data

MLP = "zoo/" + next(workload.id for workload in zoo.WORKLOADS if workload.mode == "train")
LINEAR = "experiment/three-linear-inference"


def stage(name: str, allocated: int, peak: int, reserved: int) -> RecordedStage:
    return RecordedStage(name, allocated, peak, reserved, reserved, 0)


STEP = (
    stage("build", 0, 0, 0),
    stage("to the GPU", 100, 110, 200),
    stage("batch", 130, 130, 200),
    stage("optimizer", 130, 130, 200),
    stage("forward 1", 530, 600, 800),
    stage("backward 1", 240, 900, 1000),
    stage("step 1", 440, 700, 1000),
    stage("forward 2", 840, 950, 1000),
    stage("zero_grad 2", 330, 840, 1200),
)


def test_a_workload_gives_the_numbers_of_its_first_step_and_the_peak_of_all() -> None:
    assert numbers("zoo/x", STEP) == {
        "parameters": 100,  # built on the host: 0, moved: 100
        "input": 130 - 100,
        "forward": 530 - 130,
        "after backward": 240,
        "optimizer": 440 - 240,
        "peak": 950,
        "reserved": 1200,
    }


def test_a_model_built_on_the_gpu_has_its_parameters_from_there() -> None:
    assert numbers("zoo/x", (stage("build", 70, 90, 100),))["parameters"] == 70


def test_an_experiment_gives_its_peak_and_what_it_reserved() -> None:
    assert numbers("experiment/x", STEP) == {"peak": 950, "reserved": 1200}


def test_an_entry_without_stages_gives_nothing() -> None:
    assert numbers("context", ()) == {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recording of a virtual GPU, of which one entry failed."""
    path = tmp_path_factory.mktemp("recordings")
    with VirtualGPU("T4"):
        recording = RecordingFile.open_or_new(path, describe_machine())
    for name in (MLP, LINEAR):
        with VirtualGPU("T4"):
            answer = as_data(measure(name))
        recording.put(name, RecordedEntry.from_dict(answer["entry"]), {"trace": answer["trace"]})
    recording.put("experiment/tiny", RecordedEntry("failed", 1.0, error="out of paper"))
    return path


def test_every_recorded_number_that_is_not_zero_is_a_case(folder: Path) -> None:
    (path,) = recordings(folder)
    cases = list(recorded_cases(folder))
    found = {(case.program, case.quantity) for case in cases}
    assert {entry for entry, _ in found} == {MLP, LINEAR}
    assert {quantity for entry, quantity in found if entry == LINEAR} == {"peak", "reserved"}
    assert all(case.kind == RECORDING and case.source == path.name for case in cases)
    assert all(case.truth_bytes > 0 for case in cases)


def test_the_virtual_gpu_is_asked_by_running_the_entry(folder: Path) -> None:
    cases = list(recorded_cases(folder))
    estimates_bytes = on_the_virtual_gpu(cases, folder)
    comparisons = [Comparison(one, {"virtual": estimates_bytes[one.name]}) for one in cases]
    found = score("virtual", comparisons)
    assert (found.recordings, found.equal) == (len(cases), len(cases))


def test_a_folder_without_recordings_has_no_cases(tmp_path: Path) -> None:
    assert list(recorded_cases(tmp_path)) == []
    assert list(recorded_cases(tmp_path / "not there")) == []


def test_every_workload_that_trains_or_infers_is_a_program() -> None:
    expected = ["zoo/" + w.id for w in zoo.WORKLOADS if w.mode != "generate"]
    assert list(zoo_programs()) == expected


def test_a_language_model_has_sizes_and_an_image_model_none() -> None:
    programs = zoo_programs()
    gpt2 = next(p for name, p in programs.items() if name.startswith("zoo/gpt2-b"))
    sizes = gpt2.transformer()
    assert sizes is not None
    assert (sizes.layers, sizes.hidden, sizes.heads) == (12, 768, 12)
    assert (sizes.feed_forward, sizes.vocabulary) == (4 * 768, 50257)
    vgg16 = next(p for name, p in programs.items() if name.startswith("zoo/vgg16"))
    assert vgg16.transformer() is None
