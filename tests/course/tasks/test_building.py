"""The trial of a workshop: its targets, its score, and what its recording knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from vramlab.units import MIB
from vramlab_classroom.judge import jobs, replies
from vramlab_classroom.judge.task import Achieved, NotFixed, Workshop
from vramlab_course.tasks.building import BARE_T4, Building
from vramlab_course.tasks.repair import Run
from vramlab_course.tasks.results import on_host, require_close
from vramlab_course.tasks.run_record import RecordedBlock, RecordedStep, RunRecord

ONE = 512 * 512
"""Numbers of a MiB in float32."""


def _ones(run: Run) -> tuple[torch.Tensor]:
    return (torch.ones(ONE).to("cuda"),)


def _twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def _in_place(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).add_(1)


def _compare(run: Run, expected: torch.Tensor) -> None:
    require_close(run.results, expected, "Other numbers.")


def build(**changes: Any) -> Building:
    """x * 2 + 1 of a MiB: within two MiB, by two operators."""
    fields: dict[str, Any] = {
        "gpu": BARE_T4,
        "build": _ones,
        "reference": _twice,
        "limit": lambda own: 2 * MIB,
        "most_steps": lambda run: 2,
        "collect": lambda run, returned: on_host(returned, "No tensor."),
        "compare": _compare,
    }
    return Building(**{**fields, **changes})


def refusal(trial: Building, program: Callable[..., Any]) -> str:
    with pytest.raises(NotFixed) as raised:
        trial(program)
    return str(raised.value)


def test_what_reaches_both_targets_has_a_score() -> None:
    assert build()(_in_place) == Achieved(
        "peak 2.00 MiB, target 2.00 MiB, ours 3.00 MiB; 2 operators, target 2, ours 2", 2 * MIB, 2
    )


def test_a_score_names_pytorchs_program_and_the_best_known() -> None:
    others = {"pytorch": lambda x: _twice(_in_place(x) - 1) - x, "best": _in_place}
    # Ours holds x, x * 2 and the sum, by 2 operators; the other one more MiB, by 6.
    found = build(own_name="ours", **others)(_in_place)
    assert found.text == (
        "peak 2.00 MiB, target 2.00 MiB, ours 3.00 MiB, PyTorch 4.00 MiB, best known 2.00 MiB; "
        "2 operators, target 2, ours 2, PyTorch 6, best known 2"
    )


def test_a_picture_marks_the_end_of_the_last_step_that_is_allowed() -> None:
    trial = build()
    run = trial.watch(lambda x: (x * 2).add_(0.5).add_(0.5), {})
    # x * 2 is taken and computed in ticks 0 and 1, add_ in tick 2: of the third operator, none.
    assert trial.picture("f", run).target.end == 3
    assert trial.picture("f", trial.watch(_in_place, {})).target.end is None


def test_above_the_target_in_bytes_the_largest_blocks_are_named() -> None:
    # x, x * 2 and the sum: a MiB each
    assert refusal(build(), _twice) == (
        "It allocates 3.00 MiB at its peak; the target is 2.00 MiB. The largest blocks then are "
        "1024.00 KiB: what it was given; 1024.00 KiB: result of mul, [262144] float32; "
        "1024.00 KiB: result of add, [262144] float32."
    )


def test_above_the_target_in_steps_both_are_told() -> None:
    assert refusal(build(), lambda x: (x * 2).add_(0.5).add_(0.5)) == (
        "peak 2.00 MiB, target 2.00 MiB, ours 3.00 MiB; 3 operators, target 2, ours 2. That is too "
        "many operators. Which of them could be combined?"
    )


def test_the_values_have_to_be_right_below_the_targets() -> None:
    assert refusal(build(), lambda x: x * 4).startswith("Other numbers.")


def test_peaks_count_whoever_resets_the_counters() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = _twice(x)
        torch.cuda.reset_peak_memory_stats()
        return y

    assert "It allocates 3.00 MiB" in refusal(build(), program)


def test_a_run_is_recorded_tick_by_tick() -> None:
    record = build().watch(_in_place, {}).record
    # given, x * 2 taken, mul has run, add_ has run
    assert record.held_bytes[0][:4] == [MIB, 2 * MIB, 2 * MIB, 2 * MIB]
    assert record.steps == [RecordedStep("mul", 0, 0, 2), RecordedStep("add", 0, 2, 3)]
    assert [block.name for block in record.blocks] == ["result of mul, [262144] float32"]


def test_watching_requires_nothing() -> None:
    run = build().watch(lambda x: _twice(_twice(x)), {})
    assert (run.peak_bytes, run.limit_bytes, len(run.record.steps)) == (4 * MIB, 2 * MIB, 4)


def test_blocks_of_one_kind_are_added_up() -> None:
    record = RunRecord(
        blocks=[RecordedBlock("a", 0, 2 * MIB, 1), RecordedBlock("a", 0, 2 * MIB, 2)],
        held_bytes={0: [MIB, 3 * MIB, 5 * MIB]},
    )
    assert record.largest_at_peak() == "4.00 MiB: 2 x a; 1024.00 KiB: what it was given"
    assert not RecordedBlock("b", 0, 1, born=1, freed=2).lives_at(2)


def test_a_trial_replies_its_score(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Workshop(
        name="f",
        points=1,
        minutes=1,
        visible=({},),
        hidden=lambda random: (),
        steps="operators",
        trial=lambda answer: Achieved("done", 7, 3),
    )
    reply = jobs._trial(task, "def f(): pass", {})
    assert reply == {"achieved": "done", "size_bytes": 7, "steps": 3}
    assert replies.trial(reply) == reply


@pytest.mark.parametrize(
    "forged", [{"size_bytes": -1}, {"steps": 1.5}, {"steps": True}, {"steps": "1"}]
)
def test_a_score_that_is_none_is_no_reply(forged: dict[str, Any]) -> None:
    with pytest.raises(replies.NoReply):
        replies.trial({"achieved": "done", "size_bytes": 7, "steps": 3, **forged})
