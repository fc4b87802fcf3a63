"""What the page docs/explain.md runs in a browser, run here."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from docs.builder import browser
from docs.builder.__main__ import ROOT
from docs.in_browser import playground, reports
from docs.in_browser.playground import BadCommand
from vramlab.explaining import timelines
from vramlab.explaining.traces import GPUTrace, read_gpus
from vramlab.explaining.unpickling import load_snapshot, read_bytes
from vramlab.explaining.whatif import Replay
from vramlab.units import MIB
from vramlab_course.lessons.l03_fragmentation_and_oom.growing_texts import SNAPSHOT

TWO_HOLES = "\n".join((*(f"{name} = 6 MiB" for name in "abcdef"), "free a b d e", "g = 24 MiB"))
"""Two segments of 20 MiB; c and f are in the middle of each."""


@pytest.fixture(scope="module")
def gpu() -> GPUTrace:
    path = str(SNAPSHOT)
    (gpu,) = read_gpus(load_snapshot(read_bytes(path), path))
    return gpu


@pytest.mark.parametrize("settings", ["", "expandable_segments:True", "max_split_size_mb:512"])
def test_a_curve_ends_as_the_table_says(gpu: GPUTrace, settings: str) -> None:
    curve = timelines.replayed(gpu, settings)
    told = Replay(gpu).under(settings, gpu.capacity_bytes)
    assert (curve.failed is None) == told.is_enough
    assert max(level for _, level in curve.reserved_bytes) <= told.reserved_bytes


def test_a_replay_of_pytorchs_own_recording_reserves_what_was_recorded(gpu: GPUTrace) -> None:
    recorded, replayed = timelines.as_recorded(gpu), timelines.replayed(gpu, gpu.settings)
    assert replayed.failed == recorded.failed
    ends = [curve.reserved_bytes[-1][1] for curve in (recorded, replayed)]
    assert ends[0] == ends[1]


def test_a_file_is_told_with_its_timelines() -> None:
    html = reports.explain_file(str(SNAPSHOT))
    assert "cuda:0 ran out of memory" in html
    assert html.count('type="radio"') == len(timelines.choices())
    shown = reports.timeline(str(SNAPSHOT), 0, "expandable_segments:True")
    assert "cuda:0 replayed with expandable_segments:True: fits" in shown
    assert "as recorded: runs out of memory" in reports.timeline(str(SNAPSHOT), 0, None)


def test_names_in_a_file_stay_text(tmp_path: Path) -> None:
    frames = [{"filename": "/x/<script>alert(1)</script>.py", "line": 1, "name": "<b>"}]
    block = {"size": MIB, "requested_size": MIB, "state": "active_allocated", "frames": frames}
    segment = {"device": 0, "address": 1, "total_size": MIB, "blocks": [block], "stream": 0}
    event = {"action": "alloc", "addr": 1, "size": MIB, "stream": 0, "frames": frames}
    path = tmp_path / "<i>.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[event]]}))
    html = reports.explain_file(str(path)) + reports.timeline(str(path), 0, None)
    assert html.count("<script>") == 1  # that of the timeline
    assert "<i>" not in html
    assert "<b>" not in html


def test_two_holes_are_no_room_for_one_large_block() -> None:
    *_, last = playground.play(TWO_HOLES, "", "60 MiB")
    assert last.failed
    assert (last.allocated_bytes, last.reserved_bytes) == (12 * MIB, 40 * MIB)
    assert "Tried to allocate 24.00 MiB" in last.effect
    names = sorted([block["name"] for block in segment["blocks"]] for segment in last.segments)
    assert names == [["", "c", ""], ["", "f", ""]]
    *_, last = playground.play(TWO_HOLES, "expandable_segments:True", "60 MiB")
    # 6 x 6 are in 40 MiB; 24 begin in the last 4, and 20 MiB are mapped for the rest.
    assert (last.failed, last.reserved_bytes) == (False, 60 * MIB)


@pytest.mark.parametrize(
    ("program", "total", "says"),
    [
        ("b = 12 GB", "1 GiB", "line 1: invalid size '12 GB'"),
        ("a = 1 MiB\nfree b", "1 GiB", "line 2: there is no block 'b'"),
        ("a = 1 MiB\na = 1 MiB", "1 GiB", "line 2: a is allocated already"),
        ("a = 0", "1 GiB", "line 1: a block has at least 1 byte"),
        ("malloc a", "1 GiB", "line 1: 'malloc a' is not understood"),
        ("a = 1 MiB", "much", "GPU memory: invalid size 'much'"),
    ],
)
def test_a_bad_command_is_named_with_its_line(program: str, total: str, says: str) -> None:
    with pytest.raises(BadCommand) as raised:
        playground.play(program, "", total)
    assert says in str(raised.value)


def test_the_archive_has_all_that_is_imported_and_no_torch(tmp_path: Path) -> None:
    browser.archive(ROOT, tmp_path / "vramlab.zip")
    with zipfile.ZipFile(tmp_path / "vramlab.zip") as archive:
        archive.extractall(tmp_path / "code")
    program = f"""
import sys
sys.path[:0] = [{str(tmp_path / "code")!r}]
sys.modules |= {{"torch": None, "numpy": None}}
from docs.in_browser import playground, reports
assert reports.__file__.startswith({str(tmp_path)!r})
path = {str(SNAPSHOT)!r}
assert "ran out of memory" in reports.explain_file(path)
assert "vramlab-timeline" in reports.timeline(path, 0, "expandable_segments:True")
"""
    subprocess.run([sys.executable, "-I", "-c", program], check=True)
