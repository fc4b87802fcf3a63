"""The same right answer in twenty styles: each is found, bound and right, in every task.

The answer is the solution's, renamed, and called through what a style writes around it. All are
bound by the language of repairs, which is the smaller one, so predictions may be written like this,
too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from repair_programs import _cells, our_own_runs_once

from vramlab_classroom.judge import jobs
from vramlab_classroom.judge.answers import find_answer
from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.judge.restricted import load
from vramlab_classroom.judge.task import Fix, Predict, Task, runs_in_torch
from vramlab_classroom.judge.vocabulary import vocabulary

__all__ = ["our_own_runs_once"]
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("our_own_runs_once")]

STYLES: dict[str, str] = {
    "a lambda": "{name} = lambda {given}: solved({given})",
    "a partial function": (
        "import functools\n{name} = functools.partial(lambda call, {given}: call({given}), solved)"
    ),
    "a decorator": (
        "import functools\n\ndef logged(function):\n    @functools.wraps(function)\n"
        "    def call(*args, **kwargs):\n        print(function.__name__)\n"
        "        return function(*args, **kwargs)\n    return call\n\n@logged\n"
        "def {name}({given}):\n    return solved({given})"
    ),
    "an object that is called": (
        "class Answer:\n    __slots__ = ('calls',)\n    def __init__(self):\n"
        "        self.calls = 0\n"
        "    def __call__(self, {given}):\n        self.calls += 1\n"
        "        return solved({given})\n\n{name} = Answer()"
    ),
    "a dataclass": (
        "from dataclasses import dataclass, astuple\nfrom typing import Any\n\n"
        "@dataclass(slots=True, kw_only=True)\nclass Case:\n{fields}\n"
        "    def answer(self):\n        return solved({own})\n\n"
        "def {name}({given}):\n    return Case({named}).answer()"
    ),
    "a named tuple": (
        "from typing import Any, NamedTuple\n\nclass Case(NamedTuple):\n{fields}\n\n"
        "def {name}({given}):\n    return solved(*Case({given}))"
    ),
    "a static method": (
        "class Answers:\n    @staticmethod\n    def right({given}):\n"
        "        return solved({given})\n\n{name} = Answers.right"
    ),
    "a class method, by inheritance": (
        "from abc import ABC, abstractmethod\n\nclass Base(ABC):\n    @abstractmethod\n"
        "    def answer(self, {given}): ...\n\nclass Right(Base):\n"
        "    def answer(self, {given}):\n        return solved({given})\n\n"
        "def {name}({given}):\n    return Right().answer({given})"
    ),
    "a match statement": (
        "def {name}({given}):\n    match ({given},):\n        case [{given}]:\n"
        "            return solved({given})\n        case _:\n            raise ValueError"
    ),
    "a walrus": (
        "def {name}({given}):\n    if (found := (solved({given}),)):\n        return found[0]"
    ),
    "annotations": (
        "from __future__ import annotations\nfrom collections.abc import Sequence\n"
        "def {name}({annotated}) -> int | Sequence[torch.Tensor]:\n"
        '    """Say what is right."""\n    found: Any = solved({given})\n    return found'
    ),
    "an early return": (
        "def {name}({given}):\n    while True:\n        for _ in range(3):\n"
        "            return solved({given})"
    ),
    "a comprehension": "def {name}({given}):\n    return [solved({given}) for _ in range(1)][0]",
    "a generator": (
        "def found({given}):\n    yield solved({given})\n\n"
        "def {name}({given}):\n    (only,) = found({given})\n    return only"
    ),
    "recursion": (
        "def {name}({given}, *, deep=3):\n    if not deep:\n        return solved({given})\n"
        "    return {name}({given}, deep=deep - 1)"
    ),
    "a closure": (
        "def make():\n    calls = 0\n    def right({given}):\n        nonlocal calls\n"
        "        calls += 1\n        return solved({given})\n    return right\n\n{name} = make()"
    ),
    "a context manager": (
        "from contextlib import contextmanager, suppress\n\n@contextmanager\ndef section(name):\n"
        "    try:\n        yield name\n    finally:\n        pass\n\n"
        "def {name}({given}):\n    with section('all'), suppress(KeyError):\n"
        "        return solved({given})"
    ),
    "stars": (
        "def {name}(*args, **kwargs):\n    *same, = args\n    return solved(*same, **{{**kwargs}})"
    ),
    "a registry": (
        "ANSWERS = {{}}\n\ndef register(function):\n    ANSWERS[function.__name__] = function\n"
        "    return function\n\n@register\ndef right({given}):\n    return solved({given})\n\n"
        "def {name}({given}):\n    return ANSWERS['right']({given})"
    ),
    "operators of a class": (
        "class Right:\n    def __init__(self, *given):\n        self.given = given\n"
        "    def __eq__(self, other):\n        return self.given == other.given\n"
        "    def __hash__(self):\n        return hash(len(self.given))\n"
        "    def __or__(self, function):\n        return function(*self.given)\n"
        "    def __len__(self):\n        return len(self.given)\n\n"
        "def {name}({given}):\n    return Right({given}) | solved"
    ),
}
assert len(STYLES) == 20


def in_style(style: str, name: str, given: Sequence[str], *before: str) -> list[str]:
    """Write the cells of an answer: what `solved` is, and around it a style."""
    written = STYLES[style].format(
        name=name,
        given=", ".join(given),
        own=", ".join(f"self.{each}" for each in given),
        named=", ".join(f"{each}={each}" for each in given),
        fields="\n".join(f"    {each}: Any" for each in given),
        annotated=", ".join(f"{each}: torch.Tensor | int" for each in given),
    )
    return [*before, written]


def solution(exercise: str, task: Task) -> tuple[str, list[str]]:
    """Give the solution of a task as `solved`, with its helpers, and its parameters."""
    cells = [text for kind, text in _cells(exercise) if kind == "code"]
    source = find_answer(cells, task.name)
    tree = ast.parse(source)
    (function,) = (
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == task.name
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == task.name:
            node.id = "solved"
    function.name = "solved"
    return ast.unparse(tree), [each.arg for each in function.args.args]


def with_function(kind: type[Task] | tuple[type[Task], ...]) -> Mapping[str, tuple[str, Any]]:
    """Tasks whose solution is a function, by exercise and name."""
    found = {}
    for exercise in exercise_names():
        for task in find_exercise(exercise).tasks:
            cells = [text for chosen, text in _cells(exercise) if chosen == "code"]
            if isinstance(task, kind) and any(f"\ndef {task.name}(" in f"\n{c}" for c in cells):
                found[f"{exercise.removeprefix('workshop_')[:2]} {task.name}"] = (exercise, task)
    return found


PREDICTIONS = with_function(Predict)
REPAIRS = {key: each for key, each in with_function(Fix).items() if runs_in_torch(each[1])}


def bound(cells: Sequence[str], name: str) -> Callable[..., Any]:
    answer: Callable[..., Any] = load(find_answer(cells, name), vocabulary())[name]
    return answer


@pytest.mark.parametrize("key", PREDICTIONS)
def test_a_prediction_is_right_in_each_style(key: str) -> None:
    exercise, task = PREDICTIONS[key]
    solved, given = solution(exercise, task)
    namespace: dict[str, Any] = {}
    exec(solved, namespace)
    for style in STYLES:
        answer = bound(in_style(style, task.name, given, solved), task.name)
        for case in task.visible:
            assert answer(**case) == namespace["solved"](**case), style


@pytest.mark.parametrize("key", REPAIRS)
def test_a_repair_is_bound_in_each_style(key: str) -> None:
    exercise, task = REPAIRS[key]
    _, given = solution(exercise, task)
    echo = f"def solved({', '.join(given)}):\n    return [{', '.join(given)}]"
    values = [object() for _ in given]
    for style in STYLES:
        answer = bound(in_style(style, task.name, given, "import torch", echo), task.name)
        assert answer(*values) == values, style


TRIED = ("02 row_norms", "07 evaluate", "13 train", "16 train", "21 feed_forward", "26 moe")
"""These take least; each is tried in some of the styles."""


@pytest.mark.parametrize(("number", "style"), list(enumerate(STYLES)))
def test_a_repair_passes_in_a_style(number: int, style: str) -> None:
    exercise, task = REPAIRS[TRIED[number % len(TRIED)]]
    solved, given = solution(exercise, task)
    cells = in_style(style, task.name, given, solved)
    reply = jobs._trial(task, find_answer(cells, task.name), task.visible[0])
    assert "achieved" in reply, reply
