"""What comes back from a learner's process becomes plain data of one shape, or is no reply."""

from __future__ import annotations

import pytest

from vramlab_classroom.judge import replies
from vramlab_classroom.judge.replies import NoReply

OUTCOME = {"type": "int", "value": 6, "shown": "6"}


def test_what_jobs_reply_passes_as_it_is() -> None:
    assert replies.found({"source": "x = 1"}) == {"source": "x = 1"}
    assert replies.found({"problem": "no"}) == {"problem": "no"}
    assert replies.trial({"achieved": "runs"}) == {"achieved": "runs"}
    unanswered = {"problem": "", "unanswered": True}
    assert replies.outcomes({"outcomes": [OUTCOME, unanswered]}, 2) == [OUTCOME, unanswered]
    for value in ("six", None):
        outcome = {**OUTCOME, "value": value}
        assert replies.outcomes({"outcomes": [outcome]}, 1) == [outcome]


def test_nothing_else_passes_along() -> None:
    assert replies.outcomes({"outcomes": [{**OUTCOME, "points": 99}]}, 1) == [OUTCOME]
    assert replies.trial({"problem": "no", "unanswered": 1}) == {"problem": "no"}


@pytest.mark.parametrize(
    "reply",
    [None, [], {}, {"outcomes": [OUTCOME] * 2}, {"outcomes": [OUTCOME, None]}]
    + [{"outcomes": [{**OUTCOME, **wrong}] * 3} for wrong in ({"value": True}, {"value": 6.0})]
    + [{"outcomes": [{**OUTCOME, **wrong}] * 3} for wrong in ({"type": 1}, {"shown": None})],
)
def test_what_is_of_another_shape_is_no_reply(reply: object) -> None:
    for read in (replies.found, replies.trial, lambda reply: replies.outcomes(reply, 3)):
        with pytest.raises(NoReply):
            read(reply)


def test_text_is_made_fit_to_be_printed_and_stored() -> None:
    assert replies.printable("Zoë\n\tsays 'hi'") == "Zoë\n\tsays 'hi'"
    assert replies.printable("\x1b[2J\r\ud800\0") == "\ufffd[2J\ufffd\ufffd\ufffd"
    assert replies.printable("x" * 10_001) == "x" * 10_000 + "..."
