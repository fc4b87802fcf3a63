"""Runs answers that are functions of numbers: ordinary Python, where nothing helps to cheat.

    python -P -m vramlab_classroom.sandbox.plain_answers

The process has never seen a GPU, a measurement or what is right, and imports nothing of vramlab but
what serves jobs; each answer runs in a fork of it (`serving.py`). The fork imports what the answer
names, gives up opening files for good, and only then runs the answer. Code can do there what it
likes: all that comes out is one value per call, as data, which the judge compares elsewhere.

An answer's statements at the top level run one by one. What fails, or takes long, is left out: a
plot, an experiment or a check that serves the notebook costs no points. If the answer misses what
such a statement should have given, that failure is reported.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import ModuleType
from typing import Any

from vramlab_classroom.sandbox.problems import problem
from vramlab_classroom.sandbox.serving import serve
from vramlab_classroom.sandbox.syscalls import refuse_system_calls

PRELOADED = (
    *("array", "bisect", "calendar", "cmath", "collections.abc", "copy", "csv", "datetime", "enum"),
    *("functools", "heapq", "hashlib", "inspect", "io", "itertools", "logging", "numbers"),
    *("operator", "pathlib", "pprint", "re", "statistics", "string", "struct", "textwrap"),
    *("timeit", "tokenize", "traceback", "types", "typing", "unittest", "uuid", "warnings"),
    *("encodings.ascii", "encodings.latin_1", "encodings.idna", "encodings.unicode_escape"),
)
"""Modules of the standard library that answers like to use: imported once for all of them."""

LIBRARIES = ("numpy", "torch", "pandas", "scipy", "sympy", "tqdm", "typing_extensions")
"""Other packages that an answer may import, where they are installed."""

SHOWING = ("matplotlib", "seaborn", "plotly", "bokeh", "altair", "ipywidgets", "IPython", "rich")
"""Packages that show something to who reads a notebook: stand-ins take what they are given."""

MEASURING = ("vramlab", "vramlab_course", "vramlab_classroom", "torchvision", "transformers")
WHY_NOT = {
    name: f"{name} is not there for an answer that is computed, not measured: write out what you "
    "need of it, such as a formula"
    for name in MEASURING
}

OWN_FILE = "<answer>"
TOP_LEVEL_SECONDS = 4
"""Statements besides definitions and imports have so long together."""

MAX_INT_BITS = 1024
MAX_TEXT = 10_000
MAX_SHOWN = 200
MAX_ITEMS = 6

Reply = dict[str, Any]


def run(job: Mapping[str, Any]) -> Reply:
    """Do a job: run the `source` of the answer `name`, and call it for each of `calls`.

    Returns:
        `outcomes`, in the order of the calls: exact `type`, plain `value` and text, or a `problem`.
    """
    source, calls = job["source"], job["calls"]
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return {"outcomes": [problem(error, source, OWN_FILE)] * len(calls)}
    _import_what_is_named(tree)
    _leave_all_behind()
    refuse_system_calls(but=())
    try:
        return {"outcomes": _outcomes(job, tree)}
    except BaseException as error:  # of the answer's making: it may have changed anything
        return {"outcomes": [{"problem": f"No answer: {type(error).__name__}."}] * len(calls)}


def _outcomes(job: Mapping[str, Any], tree: ast.Module) -> list[Reply]:
    name, calls = job["name"], job["calls"]
    module = _Answer(job["source"])
    module.run(tree)
    try:
        answer = module.names[name]
    except KeyError:
        return [module.missing(name)] * len(calls)
    if job["is_value"]:
        return [_data(answer)] * len(calls)
    outcomes = {index: module.call(answer, calls[index]) for index in _in_any_order(len(calls))}
    return [outcomes[index] for index in range(len(calls))]


def _in_any_order(count: int) -> Sequence[int]:
    """Return an order of calls that is always the same but says nothing about them."""
    return random.Random(count).sample(range(count), count)


# What there is for an answer.


def _import_what_is_named(tree: ast.Module) -> None:
    """Import the modules that a source names, as far as they are there for answers."""
    for name in _imported(tree):
        package = name.partition(".")[0]
        if package in LIBRARIES or package in sys.stdlib_module_names:
            with suppress(BaseException):
                importlib.import_module(name)
    sys.meta_path.insert(0, _Elsewhere())


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


class _Elsewhere(importlib.abc.MetaPathFinder):
    """Finds those modules that are not there: as stand-ins, or with a word why not."""

    def find_spec(self, name: str, path: object, target: object = None) -> Any:
        package = name.partition(".")[0]
        if package in SHOWING:
            return importlib.util.spec_from_loader(name, _StandIns(), is_package=True)
        if package in WHY_NOT:
            raise ModuleNotFoundError(WHY_NOT[package], name=name)
        return None


class _StandIns(importlib.abc.Loader):
    """Makes modules that take everything and do nothing."""

    def create_module(self, spec: Any) -> ModuleType:
        module = _Silent(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Nothing:
    """Can be called, read and entered, and gives itself."""

    def __call__(self, *arguments: object, **named: object) -> _Nothing:
        return self

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: object) -> _Nothing:
        return self

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def __iter__(self) -> Iterator[_Nothing]:
        return iter((self, self))  # figure, axes = pyplot.subplots()


class _Silent(ModuleType):
    __path__: list[str]

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()


def _leave_all_behind() -> None:
    """Forget what this process was: its modules, where they lie, its environment."""
    for name in [name for name in sys.modules if name.partition(".")[0] in MEASURING]:
        if name.startswith("vramlab"):
            del sys.modules[name]
    sys.argv[:] = [""]
    os.environ.clear()


# Running it.


class _TooLong(BaseException):
    """A statement at the top level has taken too long; no `except Exception` keeps it."""


class _Answer:
    """The module that an answer is, and what failed in it."""

    def __init__(self, source: str) -> None:
        module = ModuleType("__main__")
        sys.modules["__main__"] = module
        self._source = source
        self.names: dict[str, Any] = vars(module)
        self.names["__builtins__"] = builtins
        self._failed: dict[str, Reply] = {}
        """By the name that it should have bound, what became of a statement."""

        self._first: Reply | None = None
        for name in ("display", "get_ipython"):
            setattr(builtins, name, _Nothing())

    def run(self, tree: ast.Module) -> None:
        """Run statements one by one."""
        with _limited() as left:
            for node in tree.body:
                is_quick = isinstance(node, _QUICK)
                left(is_quick)
                try:
                    self._run(node)
                except BaseException as error:
                    self._note(node, error)

    def _run(self, node: ast.stmt) -> None:
        # Annotations stay text, so that they may name what is not there.
        postponed = __future__.annotations.compiler_flag
        code = compile(ast.Module([node], []), OWN_FILE, "exec", postponed, dont_inherit=True)
        exec(code, self.names)

    def _note(self, node: ast.stmt, error: BaseException) -> None:
        failed = problem(error, self._source, OWN_FILE)
        for name in _bound(node):
            self._failed.setdefault(name, failed)
        self._first = self._first or failed

    def missing(self, name: str) -> Reply:
        """Return why the answer itself is not there."""
        nothing = {"problem": f"no statement that ran gave {name} a value"}
        return self._failed.get(name) or self._first or nothing

    def call(self, answer: Callable[..., Any], arguments: Mapping[str, Any]) -> Reply:
        """Call the answer with the arguments of a case."""
        try:
            return _data(answer(**arguments))
        except NameError as error:
            return self._failed.get(f"{error.name}") or problem(error, self._source, OWN_FILE)
        except BaseException as error:
            return problem(error, self._source, OWN_FILE)


_QUICK = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


@contextmanager
def _limited() -> Iterator[Callable[[bool], None]]:
    """Let statements go on for `TOP_LEVEL_SECONDS` together, besides those that are quick.

    Gives a function to call before each statement. Windows has no such timer: there, only the whole
    job is late.
    """
    if not hasattr(signal, "setitimer"):
        yield lambda is_quick: None
        return

    def stop(number: int, frame: object) -> None:
        raise _TooLong(f"it took more than {TOP_LEVEL_SECONDS} seconds, besides the function")

    left = float(TOP_LEVEL_SECONDS)

    def begin(is_quick: bool) -> None:
        nonlocal left
        remaining, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        left = remaining or left
        if not is_quick:
            signal.setitimer(signal.ITIMER_REAL, max(left, 0.01))

    signal.signal(signal.SIGALRM, stop)
    try:
        yield begin
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


def _bound(node: ast.stmt) -> Iterable[str]:
    """Return the names that a statement binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    names = [
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    ]
    if isinstance(node, ast.Import | ast.ImportFrom):
        names += [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    return names


# What comes out.


def _data(value: object) -> Reply:
    """Turn what a learner returned into data: its exact type, its text, and plain values."""
    kind = type(value).__name__
    value = _number(value)
    if type(value) is int:
        if value.bit_length() > MAX_INT_BITS:
            return {"problem": f"the answer is a number of {value.bit_length()} bits"}
        return {"type": "int", "value": value, "shown": f"{value}"}
    if type(value) is str:
        if len(value) > MAX_TEXT:
            return {"problem": f"the answer is a text of {len(value)} characters"}
        return {"type": "str", "value": value, "shown": repr(value)[:MAX_SHOWN]}
    return {"type": kind, "value": None, "shown": _shown(value, kind)}


def _number(value: object) -> object:
    """Return the int that a value is exactly, if it is one of a type that has such; else the value.

    Of types that only the libraries themselves have: an answer's own type is none of these.
    """
    with suppress(Exception):
        if isinstance(value, Enum) and isinstance(value, int | str):
            value = value.value
        library = type(value).__module__
        if library in ("numpy", "torch") and getattr(value, "ndim", 1) == 0:
            value = value.item()  # type: ignore[attr-defined]
        if type(value) is float and value.is_integer():
            return int(value)
        if type(value) is Fraction and value.denominator == 1:
            return value.numerator
        if type(value) is Decimal and abs(value.adjusted()) < MAX_SHOWN and value == int(value):
            return int(value)
    return value


def _shown(value: object, kind: str, depth: int = 0) -> str:
    """Return a short text, without making a long one first."""
    if type(value) is int and value.bit_length() > MAX_INT_BITS:
        return f"a number of {value.bit_length()} bits"
    if type(value) in (str, bytes, bytearray) and len(value) > MAX_SHOWN:  # type: ignore[arg-type]
        return f"{value[:MAX_SHOWN]!r}..."  # type: ignore[index]
    if type(value) in (list, tuple, set, frozenset, dict):
        if len(value) > MAX_ITEMS or depth > 1:  # type: ignore[arg-type]
            return f"a {kind} of {len(value)}"  # type: ignore[arg-type]
        if any(len(_shown(each, "", depth + 1)) > MAX_SHOWN for each in value):  # type: ignore[attr-defined]
            return f"a {kind} of {len(value)}"  # type: ignore[arg-type]
        if type(value) is dict:
            return _shown([*value, *value.values()], kind, depth)
    with suppress(BaseException):
        return f"{repr(value)[:MAX_SHOWN]}"
    return f"something of type {kind}"


def main() -> None:
    """Serve a judge until it is gone."""
    for module in PRELOADED:
        importlib.import_module(module)
    serve(os.dup(1), run)


if __name__ == "__main__":
    main()
