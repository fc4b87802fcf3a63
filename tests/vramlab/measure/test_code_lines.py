"""Lines of code that hold memory."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch

import vramlab
from packages import FOLDERS
from vramlab.measure import BlockLife, CodeLine, Frame, TimelineMoment, code_lines, code_lines_table
from vramlab.measure.code_lines import is_library_frame, user_frame
from vramlab.units import MIB

MINE = Frame("/home/me/train.py", 7, "forward")
TORCH = Frame(str(Path(torch.__file__).parent / "nn" / "modules" / "linear.py"), 134, "forward")
STDLIB = Frame(sysconfig.get_path("stdlib") + "/contextlib.py", 81, "inner")
DEBIAN = Frame("/usr/lib/python3/dist-packages/numpy/core.py", 3, "f")
MACHINERY = Frame(
    str(Path(vramlab.__file__).parent / "gpu" / "core" / "dispatcher.py"), 5, "dispatch"
)
FROZEN = Frame("<frozen runpy>", 198, "_run_module_as_main")


def life(size_bytes: int, *frames: Frame) -> BlockLife:
    return BlockLife(0, size_bytes, size_bytes, size_bytes, 0, 0, None, frames)


def moment(*blocks: BlockLife) -> TimelineMoment:
    return TimelineMoment(position=3, stage=None, blocks=blocks, reserved_bytes=20 * MIB)


def test_libraries_and_machinery_are_not_the_users() -> None:
    assert all(map(is_library_frame, (TORCH, STDLIB, DEBIAN, MACHINERY, FROZEN)))
    assert not is_library_frame(MINE)
    assert not is_library_frame(Frame("/tmp/ipykernel_12/345.py", 2, "<module>"))
    experiment = str(FOLDERS["vramlab_course"] / "experiments" / "training_step.py")
    assert not is_library_frame(Frame(experiment, 2, "run"))


def test_the_innermost_frame_of_the_user_counts() -> None:
    caller = Frame("/home/me/train.py", 90, "main")
    assert user_frame(life(1, MACHINERY, TORCH, MINE, caller, STDLIB)) == MINE
    assert user_frame(life(1, TORCH, STDLIB)) == TORCH  # nothing else to name
    assert user_frame(life(1)) is None
    nobodys = Frame("<string>", 1, "<module>")  # as of `python -c`
    assert user_frame(life(1, TORCH, nobodys)) == nobodys
    assert user_frame(life(1, TORCH, nobodys, MINE)) == MINE


def test_lines_are_summed_and_ordered_by_bytes() -> None:
    lines = code_lines(
        moment(life(2 * MIB, TORCH, MINE), life(5 * MIB), life(4 * MIB, MINE), life(512, TORCH))
    )
    assert lines == (
        CodeLine(MINE, 6 * MIB, 2),
        CodeLine(None, 5 * MIB, 1),
        CodeLine(TORCH, 512, 1),
    )
    assert [str(line) for line in lines] == [
        "train.py:7 forward",
        "(no Python traceback)",
        "linear.py:134 forward",
    ]


def test_table_shows_the_most_and_adds_up_the_rest() -> None:
    table = code_lines_table(
        moment(*(life(size, Frame("/home/me/a.py", size, "f")) for size in (512, 1024, 4096))),
        most=1,
    )
    assert table.rows == (
        ("a.py:4096 f", "0.0039 MiB\n4,096 B", "1"),
        ("2 more lines", "0.0015 MiB\n1,536 B", "2"),
    )
