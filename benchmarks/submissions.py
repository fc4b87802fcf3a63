"""A class for benchmarks of grading: solutions of an exercise, no two of them alike.

Each student writes every function in a way of their own, so that no verdict can be remembered from
one student to the next; and every third makes a mistake, each time in another task.
"""

from __future__ import annotations

import ast
import copy
import json
from pathlib import Path
from typing import Any

from vramlab_classroom.judge.notebooks import TEST_SUFFIX, grade_id

ROOT = Path(__file__).parents[1]
EXERCISE = "02_pages_and_blocks"
WRONG_EVERY = 3

Notebook = dict[str, Any]


def released(exercise: str = EXERCISE) -> Notebook:
    """Read what students get."""
    notebook: Notebook = json.loads(
        (ROOT / "exercises" / exercise / f"{exercise}.ipynb").read_text(encoding="utf-8")
    )
    return notebook


def solutions(exercise: str = EXERCISE) -> dict[str, str]:
    """Read the answers, by the name of their task, from the master."""
    master = json.loads(
        (ROOT / "solutions" / exercise / f"{exercise}.ipynb").read_text(encoding="utf-8")
    )
    return {
        name: "".join(cell["source"])
        for cell in master["cells"]
        if (name := grade_id(cell)) and f"{name}{TEST_SUFFIX}" in map(grade_id, master["cells"])
    }


def submission(number: int, exercise: str = EXERCISE, *, alike: bool = False) -> Notebook:
    """Write the submission of a student.

    Args:
        number: of the student.
        exercise: its name.
        alike: whether all students answer the same, and right.
    """
    notebook = copy.deepcopy(released(exercise))
    answers = solutions(exercise)
    tasks = list(answers)
    mistaken = tasks[number // WRONG_EVERY % len(tasks)] if number % WRONG_EVERY == 0 else None
    for cell in notebook["cells"]:
        if (name := grade_id(cell)) in answers:
            source = answers[name or ""]
            cell["source"] = source if alike else vary(source, number, wrong=name == mistaken)
    return notebook


def vary(source: str, number: int, *, wrong: bool) -> str:
    """Write an answer in the way of a student.

    Args:
        source: the right answer: functions, or statements.
        number: of the student.
        wrong: whether what the functions give is to be something else. An answer that is no
            function is as it was.
    """
    tree = ast.parse(source)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            function.body.insert(0, ast.parse(f"my_number = {number}").body[0])
            if wrong:
                function.body = [_Mistake().visit(statement) for statement in function.body]
    return ast.unparse(ast.fix_missing_locations(tree))


class _Mistake(ast.NodeTransformer):
    """Adds to what a function gives."""

    def visit_Return(self, node: ast.Return) -> ast.Return:
        if node.value is not None:
            node.value = ast.BinOp(node.value, ast.Add(), ast.parse("my_number + 1").body[0].value)  # type: ignore[attr-defined]
        return node
