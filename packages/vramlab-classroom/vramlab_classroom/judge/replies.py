"""What may come back from a job that has run a learner's code.

Such a job speaks for itself: if its code has broken out of its small language, the reply can be
anything that fits into one message. Here it becomes plain data of the one shape that the judge
expects, with text that is safe to print, store and show; or it is no reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_TEXT_CHARACTERS = 10_000
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

Data = Mapping[str, Any]


class NoReply(ValueError):
    """What came back is nothing that a job of this kind replies."""


def found(reply: object) -> Data:
    """Read the reply of a `find` job: the source of the answer, or the problem with it.

    Besides, what `follow_through.find_following` gives, if it gave anything.
    """
    match reply:
        case {"source": str(source)}:
            answer: Data = {"source": source}
        case _:
            answer = _problem(reply)
    match reply:
        case {"followed": str(followed), "replaced": [*names]}:
            return {**answer, "followed": followed, "replaced": [printable(f"{n}") for n in names]}
    return answer


def outcomes(reply: object, count: int) -> list[Data]:
    """Read the reply of an `answer` job: one outcome per call."""
    match reply:
        case {"outcomes": [*listed]} if len(listed) == count:
            return [_outcome(each) for each in listed]
    raise NoReply


def trial(reply: object) -> Data:
    """Read the reply of a `trial` job: what the program achieved, or the problem it has.

    Of a workshop's program also its score, in `size_bytes` and `steps`; of an answer in words also
    what it `answered`, and what is `right`.
    """
    match reply:
        case {"achieved": str(achieved), "size_bytes": size_bytes, "steps": steps}:
            if type(size_bytes) is type(steps) is int and min(size_bytes, steps) >= 0:
                return {
                    "achieved": printable(achieved),
                    "size_bytes": size_bytes,
                    "steps": steps,
                }
        case {"achieved": str(achieved)}:
            return {"achieved": printable(achieved)}
        case {"problem": str(problem), "answered": str(answered), "right": str(right)}:
            return {
                "problem": printable(problem),
                "answered": printable(answered),
                "right": printable(right),
            }
    return _problem(reply)


def printable(text: str) -> str:
    """Cut a text to a length for people, without what would steer a terminal or fail to encode."""
    if len(text) > MAX_TEXT_CHARACTERS:
        text = f"{text[:MAX_TEXT_CHARACTERS]}..."
    return "".join(
        character if character.isprintable() or character in "\n\t" else REPLACEMENT
        for character in text
    )


def _outcome(reply: object) -> Data:
    match reply:
        case {"type": str(kind), "value": int() | str() | None as value, "shown": str(shown)}:
            if type(value) in (int, str, type(None)):
                return {"type": printable(kind), "value": value, "shown": printable(shown)}
    return _problem(reply)


def _problem(reply: object) -> Data:
    match reply:
        case {"problem": str(problem), "unanswered": True}:
            return {"problem": printable(problem), "unanswered": True}
        case {"problem": str(problem)}:
            return {"problem": printable(problem)}
    raise NoReply
