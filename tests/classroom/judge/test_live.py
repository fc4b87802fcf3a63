"""`check` and `evidence` in a learner's kernel: feedback on the visible cases."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from vramlab_classroom.judge.verdict import Grade, WrongAnswer
from vramlab_course import check, evidence

EXERCISE = "02_pages_and_blocks"
RIGHT = "def block_bytes(requested_bytes):\n    return -(-requested_bytes // 512) * 512"
WRONG = "def block_bytes(requested_bytes):\n    return requested_bytes"


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of executed cells that check() will see."""
    cells: list[str] = [""]  # IPython's history begins with an empty entry
    shell = SimpleNamespace(history_manager=SimpleNamespace(input_hist_raw=cells))
    monkeypatch.setattr("vramlab_classroom.judge.notebook_api.get_ipython", lambda: shell)
    return cells


def test_a_right_answer_prints_its_verdict(executed: list[str], capsys) -> None:
    executed += [WRONG, RIGHT, f'check("{EXERCISE}", "block_bytes")']
    check(EXERCISE, "block_bytes")
    printed = capsys.readouterr()
    assert printed.out.startswith("block_bytes: passed in 6 cases, 2 of 2 points\n")
    assert printed.err == ""


def test_a_wrong_answer_raises_its_verdict(executed: list[str], capsys) -> None:
    executed += [RIGHT, WRONG]
    with pytest.raises(WrongAnswer) as caught:
        check(EXERCISE, "block_bytes")
    assert caught.value.verdict.grade is Grade.PARTLY  # right where sizes are whole blocks
    shown = caught.value._render_traceback_()
    assert shown[:2] == [
        "block_bytes: partly right in 3 of 6 cases, 1 of 2 points",
        "You gave the requested size. The allocator rounds it up to a multiple of 512 bytes.",
    ]
    assert capsys.readouterr() == ("", "")


def test_patches_in_the_kernel_do_not_reach_the_verdict(
    executed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda *a: 0)
    executed += ["def block_bytes(requested_bytes):\n    return 0"]
    with pytest.raises(WrongAnswer):
        check(EXERCISE, "block_bytes")


def test_evidence_is_that_of_the_first_visible_case() -> None:
    stats = evidence(EXERCISE, "releasable_bytes")["stats"]
    # A tensor of 4 MiB stays in its 20 MiB segment; one of 30 MiB is gone, its segment cached.
    assert stats["allocated_bytes.all.current"] == 4 * 2**20
    assert stats["reserved_bytes.all.current"] == (20 + 30) * 2**20
