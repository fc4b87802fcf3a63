"""Follow-through: an answer that builds on an earlier one is not wrong because that one is.

Where an answer uses the learner's answer to an earlier task, and does not pass, it is judged once
more with the right answer in its place, if a master notebook is there to take it from. What it
earns more counts, and the verdict says so.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from vramlab.errors import VramlabError
from vramlab_classroom.judge.answers import BrokenCell, NoAnswer, find_answer
from vramlab_classroom.judge.notebooks import cells_of_answers
from vramlab_classroom.judge.task import Exercise
from vramlab_classroom.judge.verdict import Grade, Verdict

_FACTORY = "the_right_"


def right_answers(exercise: Exercise, master: Path) -> dict[str, str]:
    """Take the right answers from a master notebook: of each task a statement that binds its name.

    What an answer there needs is hidden in a function, so that it meets no name of a learner's.

    Args:
        exercise: whose master it is.
        master: the file; without it, nothing is known to be right.

    Raises:
        VramlabError: it is no notebook.
    """
    if not master.is_file():
        return {}
    names = [task.name for task in exercise.tasks]
    try:
        written = json.loads(master.read_text(encoding="utf-8"))["cells"]
        joined = [{**cell, "source": "".join(cell["source"])} for cell in written]
    except (ValueError, TypeError, KeyError) as error:
        raise VramlabError(f"the master {master} is no notebook: {error!r}") from error
    rights = {}
    for name, cells in cells_of_answers({"cells": joined}, names).items():
        with suppress(NoAnswer, BrokenCell):
            rights[name] = _standing_alone(name, find_answer(cells, name))
    return rights


def find_following(
    task: str, cells: Sequence[str], rights: Mapping[str, str]
) -> dict[str, str | list[str]]:
    """Find the answer to a task with the right answers to earlier tasks in it, where it uses them.

    Args:
        task: its name.
        cells: the sources to look in.
        rights: right answers, in the order of the tasks.

    Returns:
        The source, `followed`, and the names `replaced` in it; nothing, if it uses none.
    """
    earlier = dict(takewhile(lambda item: item[0] != task, rights.items()))
    if not earlier:
        return {}
    followed = find_answer(cells, task, earlier)
    replaced = [name for name, right in earlier.items() if right in followed]
    return {"followed": followed, "replaced": replaced} if replaced else {}


def right_alone(verdicts: Iterable[Verdict]) -> list[str]:
    """List the tasks whose answers are right, without the help of right ones to earlier tasks."""
    return [each.task for each in verdicts if each.grade is Grade.PASSED and not each.note]


def better_of(own: Verdict, following: Verdict, replaced: Sequence[str]) -> Verdict:
    """Return the verdict that counts.

    Args:
        own: on the answer as it is.
        following: on the answer with earlier answers replaced by right ones.
        replaced: the tasks of those that were wrong.
    """
    if own.score is None or (following.score or 0) <= own.score:
        return own
    note = f"Judged with the right {' and '.join(replaced)} instead of yours."
    return replace(following, note=note)


def _standing_alone(name: str, source: str) -> str:
    # One statement, so that code that needs the name has the function, too.
    statement: Any = ast.parse(
        f"if True:\n"
        f"    def {_FACTORY}{name}():\n"
        f"        return {name}\n"
        f"    {name} = {_FACTORY}{name}()"
    ).body[0]
    statement.body[0].body[:0] = ast.parse(source).body
    return ast.unparse(ast.fix_missing_locations(statement))
