"""Jobs of the pool that has torch, each in a fresh process: find, measure, try a repair.

`call` is for those who build upon grading: it calls a function of theirs with data.

`trial` runs a learner's code, in the small language of `restricted.py`; what comes out of it is
data, never an object of the learner's. Answers in plain Python run elsewhere
(`sandbox/plain_answers.py`).
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from vramlab_classroom.judge.answers import BrokenCell, NoAnswer, find_answer
from vramlab_classroom.judge.follow_through import find_following
from vramlab_classroom.judge.restricted import load
from vramlab_classroom.judge.task import (
    Achieved,
    Diagnose,
    Exercise,
    Fix,
    NotFixed,
    Predict,
    Task,
    Workshop,
    attached_for,
    runs_in_ranks,
    runs_in_torch,
)
from vramlab_classroom.judge.vocabulary import OWN_MODULE, NotAllowed, vocabulary
from vramlab_classroom.sandbox.problems import own_line, problem

Reply = dict[str, Any]


def run(request: Mapping[str, Any]) -> Reply:
    """Do one job. Every value in the reply can be written as JSON."""
    if request["job"] == "call":
        function = getattr(importlib.import_module(request["module"]), request["function"])
        return dict(function(**request["arguments"]))
    if request["job"] == "find":
        rights = request["rights"]
        return {task: find(task, cells, rights) for task, cells in request["cells"].items()}
    exercise: Exercise = importlib.import_module(request["module"]).EXERCISE
    task = exercise.task(request["task"])
    match request["job"]:
        case "measure":
            return _with_imports(
                lambda: {"measured": [measure(task, config) for config in request["configs"]]}
            )
        case "trial":
            return _trial(task, request["source"], request["config"])
        case unknown:
            raise ValueError(f"a job pool knows no job {unknown!r}")


def prepare(asked: Mapping[str, Any]) -> None:
    """Run the task's own programs once for all answers, and build the vocabulary of repairs.

    In the server: every fork has their results then. Not where there is a GPU, since backward
    passes start threads for it, which no fork would have: there each trial runs them itself.
    """
    import torch

    vocabulary()
    exercise: Exercise = importlib.import_module(asked["module"]).EXERCISE
    references: Any = getattr(exercise.task(asked["task"]), "trial", None)
    if hasattr(references, "prepare") and not torch.cuda.is_available():
        references.prepare(**asked["config"])
        gc.collect()


def _with_imports(job: Callable[[], Reply]) -> Reply:
    """Do a job and add the names of the modules that it has `imported`."""
    before = set(sys.modules)
    reply = job()
    new = [(name, module) for name, module in sys.modules.items() if name not in before]
    # Not everything there is a module that could be imported by its name.
    imported = [name for name, module in new if getattr(module, "__spec__", None)]
    return {**reply, "imported": imported}


def measure(task: Task, config: Mapping[str, Any]) -> Reply:
    """Measure a case: the `arguments` of the answer, and the `truth`."""
    if isinstance(task, Predict):
        with attached_for(task.gpu, config):
            measured = task.measure(**config)
        return {"arguments": dict(config), "truth": _checked_truth(task, measured)}
    if isinstance(task, Diagnose):
        with attached_for(task.gpu, config):
            observation = task.observe(**config)
        truth = _checked_truth(task, observation.answer)
        return {"arguments": dict(observation.evidence), "truth": truth}
    raise TypeError(f"{task.name} has nothing to measure: it is a {type(task).__name__} task")


def _checked_truth(task: Task, truth: int | str) -> int | str:
    if type(truth) not in (int, str):
        raise TypeError(f"the truth of {task.name} is {truth!r}; it must be an int or a str")
    return truth


def find(task: str, cells: Sequence[str], rights: Mapping[str, str]) -> Reply:
    """Return the `source` of the answer to a task, or the `problem` that there is with it.

    Besides, what `find_following` gives.
    """
    found = _find(lambda: {"source": find_answer(cells, task)})
    following = _find(lambda: find_following(task, cells, rights))
    return {**found, **following} if "followed" in following else found


def _find(finding: Callable[[], Reply]) -> Reply:
    try:
        return finding()
    except NoAnswer as error:
        return {"problem": str(error), "unanswered": True}
    except BrokenCell as error:
        return {"problem": str(error)}
    except Exception as error:
        return problem(error, "", OWN_MODULE)


def _trial(task: Task, source: str, config: Mapping[str, Any]) -> Reply:
    if not isinstance(task, Fix):
        raise TypeError(f"{task.name} has nothing to try: it is a {type(task).__name__} task")
    later = runs_in_torch(task) or runs_in_ranks(task)
    bound = _bind_later(task, source) if later else _bind(task, source)
    if "answer" not in bound:
        return bound
    try:
        achieved = task.trial(bound["answer"], **config)
    except NotFixed as failure:
        words = {"answered": failure.answered, "right": failure.right}
        return {"problem": str(failure), **(words if failure.right else {})}
    except BaseException as error:
        if own_line(error, source, OWN_MODULE) is None:
            raise  # a fault of the task, not of the answer
        return problem(error, source, OWN_MODULE, own=NotAllowed)
    if isinstance(achieved, Achieved):
        return {
            "achieved": achieved.text,
            "size_bytes": achieved.size_bytes,
            "steps": achieved.steps,
        }
    return {"achieved": achieved}


def _bind_later(task: Fix, source: str) -> Reply:
    """Return a function that calls the answer, and binds it when it is called for the first time.

    So what an answer's cells do at the top level is done in the run that is looked at, where work
    and memory count; and on ranks, in each rank's process.
    """

    @cache
    def bound() -> Reply:
        return _bind(task, source)

    def call(*args: Any) -> Any:
        if "answer" not in bound():
            raise NotFixed(bound()["problem"] or "Its cell raises NotImplementedError.")
        return bound()["answer"](*args)

    return {"answer": call}


def _bind(task: Fix, source: str) -> Reply:
    """Return the object that the answer binds, or the problem that it has."""
    absent = task.without if isinstance(task, Workshop) else ()
    try:
        return {"answer": load(source, vocabulary().without(absent))[task.name]}
    except BaseException as error:
        return problem(error, source, OWN_MODULE, own=NotAllowed)
