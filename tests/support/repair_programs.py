"""Programs for the trials of `Fix` tasks: as given, as they should be, and cheats made of both.

A cheat is made of any task's programs, by Python without limits: what it earns nothing by is what
trials see to, and not the language of answers.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from vramlab_classroom.judge.answers import find_answer
from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.judge.task import Exercise, Fix
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.results import parameters_of

ROOT = Path(__file__).parents[2]

Program = Callable[..., Any]
Cheat = Callable[[Program, Program], Program]
"""Makes a program of the one as it was given and the one as it should be."""

CHEATS: dict[str, Cheat] = {}

SMALL_CASES: dict[str, dict[str, Any]] = {
    "04 train_head": {"width": 1024, "depth": 20},
    "09 train": {"layers": 2, "steps": 5},
    "11 attention": {"length": 1536, "window": 192},
    "23 backward": {"rows": 768},
    "24 train": {"layers": 8, "steps": 2},
}
"""Instead of the first visible case, where that takes long; by exercise and task."""


def repairs() -> Iterator[tuple[Exercise, Fix]]:
    """The tasks whose answers are programs in torch."""
    for name in exercise_names():
        exercise = find_exercise(name)
        for task in exercise.tasks:
            if isinstance(task, Fix) and not (task.is_value or task.is_plain):
                yield exercise, task


def small_case(exercise: Exercise, task: Fix) -> dict[str, Any]:
    number = exercise.name.partition("_")[0]
    return SMALL_CASES.get(f"{number} {task.name}", dict(task.visible[0]))


@cache
def _cells(name: str) -> list[tuple[str, str]]:
    path = ROOT / "solutions" / name / f"{name}.ipynb"
    return [(c["cell_type"], "".join(c["source"])) for c in json.loads(path.read_text())["cells"]]


def solution_source(exercise: Exercise, task: Fix) -> str:
    return find_answer([text for kind, text in _cells(exercise.name) if kind == "code"], task.name)


def given_source(exercise: Exercise, task: Fix) -> str:
    """The program in the task's text, with what the notebook imports of torch."""
    texts = [text for kind, text in _cells(exercise.name) if kind == "markdown"]
    blocks = [block for text in texts for block in re.findall(r"```python\n(.*?)```", text, re.S)]
    program = next(block for block in blocks if f"def {task.name}(" in block)
    code = "\n".join(text for kind, text in _cells(exercise.name) if kind == "code")
    imports = re.findall(r"(?m)^(?:import|from) torch.*$", code)
    return "\n".join([*imports, program])


def bound(source: str, name: str) -> Program:
    """Run a program's source without limits, and give what it binds."""
    namespace: dict[str, Any] = {"__name__": "programs"}
    exec(source, namespace)
    program: Program = namespace[name]
    return program


_own_runs: dict[Any, Run] = {}


@pytest.fixture
def our_own_runs_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remember the runs of our own programs, which are the same in every trial of a case.

    And compute in one thread, as pools do: tests share the cores. Garbage is looked for among what
    a trial makes, not in all that is imported.
    """
    run_anew = Repair._run

    def run_once(repair: Repair, run: Run) -> Run:
        if run.program is None or run.program not in (repair.reference, repair.fits):
            return run_anew(repair, run)
        key = id(repair), id(run.program), str(run.case)
        if key not in _own_runs:
            _own_runs[key] = run_anew(repair, run)
        return _own_runs[key]

    monkeypatch.setattr(Repair, "_run", run_once)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


def cheat(make: Cheat) -> Cheat:
    CHEATS[make.__name__] = make
    return make


# Work on the host


class _OnTheHost(TorchFunctionMode):
    """Runs everything on the host instead of the GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {name: _host_for_gpu(value) for name, value in (kwargs or {}).items()}
        args = [_host_for_gpu(value) for value in args]
        if func is torch.Tensor.cuda:
            return args[0].cpu()
        return func(*args, **kwargs)


def _host_for_gpu(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("cuda"):
        return "cpu"
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return value


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, torch.nn.Module):
        value.to(device)
        for parameter in parameters_of(value):
            if parameter.grad is not None:
                parameter.grad = parameter.grad.to(device)
        return value
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, tuple | list):
        return type(value)(_moved(each, device) for each in value)
    if callable(value) and not isinstance(value, type):
        return lambda *args: _moved(value(*args), device)
    return value


def _run_on_host(program: Program, *inputs: Any) -> Any:
    if any(getattr(each, "__name__", "") == "shard" for each in inputs):
        return _shard_to_compute_on_host(program, *inputs)
    on_host = [_moved(each, "cpu") for each in inputs]
    with _OnTheHost():
        returned = program(*on_host)
    for each in inputs:
        if isinstance(each, torch.nn.Module):
            _moved(each, "cuda")
    return _moved(returned, "cuda")


def _shard_to_compute_on_host(program: Program, model: Any, shard: Any) -> None:
    program(model, shard)
    for layer in model.layers:
        layer.forward = lambda x, layer=layer: (x.cpu() @ layer.weight.cpu().T).to("cuda")


@cheat
def solved_on_the_host(given: Program, solved: Program) -> Program:
    return partial(_run_on_host, solved)


@cheat
def as_given_on_the_host(given: Program, solved: Program) -> Program:
    return partial(_run_on_host, given)


# Nothing, or not yet


@cheat
def does_nothing(given: Program, solved: Program) -> Program:
    return lambda *inputs: None


@cheat
def does_nothing_where_there_are_values(given: Program, solved: Program) -> Program:
    """Looks whether numbers are computed, as in a run in which results are compared."""

    def program(*inputs: Any) -> Any:
        probe = torch.ones(1, device="cuda") + 1
        with suppress(Exception):
            if float(probe) == 2:
                return None
        return solved(*inputs)

    return program


@cheat
def as_given_where_there_are_values(given: Program, solved: Program) -> Program:
    def program(*inputs: Any) -> Any:
        probe = torch.ones(1, device="cuda") + 1
        return given(*inputs) if float(probe) == 2 else solved(*inputs)

    return program


@cheat
def as_given_the_first_time(given: Program, solved: Program) -> Program:
    """Takes the first call for one that is not checked."""
    calls: list[int] = []

    def program(*inputs: Any) -> Any:
        calls.append(1)
        return given(*inputs) if len(calls) == 1 else solved(*inputs)

    return program


class Later(torch.Tensor):
    """Computes when it is read."""

    compute: Callable[[], Any]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        read = [each.compute() if isinstance(each, Later) else each for each in args]
        return func(*read, **(kwargs or {}))


@cheat
def works_later(given: Program, solved: Program) -> Program:
    """Gives what computes when it is read, and puts what computes where results are looked for."""

    def program(*inputs: Any) -> Any:
        done: list[Any] = []

        def compute() -> Any:
            if not done:
                done.append(given(*inputs))
            return done[0]

        for module in [each for each in inputs if isinstance(each, torch.nn.Module)]:
            parameters = module.parameters

            def computed(parameters: Any = parameters) -> Any:
                compute()
                return parameters()

            module.parameters = computed  # type: ignore[method-assign]
            module.named_parameters = lambda m=module: (  # type: ignore[method-assign,misc]
                compute(),
                iter(()),
            )[1]
        later = torch.empty(1, device="cuda").as_subclass(Later)
        later.compute = compute
        return later

    return program


# The judge's own tensors, counters, limits and classes


@cheat
def lifts_the_limit(given: Program, solved: Program) -> Program:
    def program(*inputs: Any) -> Any:
        before = torch.cuda.get_per_process_memory_fraction()
        for gpu in range(torch.cuda.device_count()):
            torch.cuda.set_per_process_memory_fraction(1.0, gpu)
        returned = given(*inputs)
        torch.cuda.empty_cache()
        for gpu in range(torch.cuda.device_count()):
            torch.cuda.set_per_process_memory_fraction(before, gpu)
            torch.cuda.reset_peak_memory_stats(gpu)
        return returned

    return program


@cheat
def cuts_what_it_was_given(given: Program, solved: Program) -> Program:
    """Sets the memory of tensors that are held elsewhere to 0 bytes."""

    def program(*inputs: Any) -> Any:
        held: list[torch.Tensor] = []

        def cut(tensors: Sequence[Any]) -> None:
            for each in tensors:
                if isinstance(each, torch.Tensor):
                    each.untyped_storage().resize_(0)

        def loading(load: Program) -> Program:
            @wraps(load)
            def load_and_cut(*args: Any) -> Any:
                cut(held)
                batch = load(*args)
                held[:] = batch if isinstance(batch, tuple) else [batch]
                return batch

            return load_and_cut

        is_loaded = [callable(each) and not isinstance(each, torch.nn.Module) for each in inputs]
        wrapped = [
            loading(each) if loads else each for each, loads in zip(inputs, is_loaded, strict=True)
        ]
        returned = given(*wrapped)
        cut(inputs)
        cut([p for m in inputs if isinstance(m, torch.nn.Module) for p in parameters_of(m)])
        return returned

    return program


@cheat
def swaps_the_class_of_the_model(given: Program, solved: Program) -> Program:
    """The model answers that it has no parameters that could be wrong."""

    def program(*inputs: Any) -> Any:
        for module in [each for each in inputs if isinstance(each, torch.nn.Module)]:
            kind = type(module)
            names = {"parameters": lambda self: iter(()), "state_dict": lambda self: {}}
            module.__class__ = type(kind.__name__, (kind,), names)
        return None

    return program


# What is not computed at all


def remembered(solved: Program) -> Program:
    """Computes the first time, and after that gives what it gave then; loads what is to be loaded.

    As if results could be kept from one run to the next, or were known.
    """
    kept: list[Any] = []

    def first(*inputs: Any) -> Any:
        returned = solved(*inputs)
        models = [each for each in inputs if isinstance(each, torch.nn.Module)]
        tensors = [t for m in models for t in parameters_of(m)]
        tensors += [each for each in inputs if isinstance(each, torch.Tensor)]
        state = [
            (t.detach().cpu().clone(), None if t.grad is None else t.grad.detach().cpu().clone())
            for t in tensors
        ]
        kept.append((_moved(returned, "cpu"), state))
        return returned

    def again(*inputs: Any) -> Any:
        returned, state = kept[0]
        models = [each for each in inputs if isinstance(each, torch.nn.Module)]
        tensors = [t for m in models for t in parameters_of(m)]
        tensors += [each for each in inputs if isinstance(each, torch.Tensor)]
        for tensor, (value, gradient) in zip(tensors, state, strict=True):
            with torch.no_grad():
                tensor.copy_(value)
            if gradient is not None:
                tensor.grad = gradient.to("cuda")
        _load_all(inputs)
        return _moved(returned, "cuda")

    return lambda *inputs: again(*inputs) if kept else first(*inputs)


def _load_all(inputs: Sequence[Any]) -> None:
    """Call functions among the inputs as the program would: with the indices in their order."""
    for each in inputs:
        if callable(each) and not isinstance(each, torch.nn.Module):
            count = next((n for n in reversed(inputs) if isinstance(n, int)), 0)
            lengths = next((n for n in inputs if isinstance(n, list)), range(count))
            for index, _ in enumerate(lengths):
                with suppress(TypeError):
                    each(index)
