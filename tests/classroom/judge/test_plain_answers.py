"""Predictions and diagnoses are ordinary Python, and whatever they try earns nothing.

Honest answers in many styles pass; hostile ones get no point, and the next answer is judged.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import toy_exercise

from vramlab_classroom.judge import job_pool
from vramlab_classroom.judge.job_pool import JobPool
from vramlab_classroom.judge.judge import Judge
from vramlab_classroom.judge.verdict import Grade, Verdict

pytestmark = pytest.mark.long

TOY = toy_exercise.EXERCISE
"""Its task `double` asks for twice the `size`."""


@pytest.fixture(scope="module")
def judge(pool: JobPool) -> Iterator[Judge]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_pool, "ANSWER_SECONDS", 5)
        yield Judge(pool, "the seed of the tests")


def verdict(judge: Judge, *cells: str) -> Verdict:
    return judge.judge(TOY, "double", cells)


HONEST = {
    "numpy": ["import numpy as np", "def double(size):\n    return np.int64(2) * np.ceil(size)"],
    "numpy table": [
        "import numpy as np",
        "def double(size):\n    table = np.zeros(size + 1, dtype=np.int64)\n"
        "    for n in range(1, size + 1):\n        table[n] = table[n - 1] + 2\n"
        "    return table[size]",
    ],
    "numpy array without dimensions": [
        "import numpy\ndef double(size):\n    return numpy.array(2 * size)"
    ],
    "exact float": ["def double(size):\n    return size / 0.5"],
    "fraction": [
        "from fractions import Fraction\ndef double(size):\n    return size / Fraction(1, 2)"
    ],
    "decimal": [
        "import decimal as d\ndef double(size):\n    return d.Decimal(size) * d.Decimal('2.0')"
    ],
    "enum": [
        "from enum import Enum, IntEnum\n"
        "class Factor(IntEnum):\n    TWO = 2\n"
        "def double(size):\n    return Factor.TWO * size"
    ],
    "annotations of what is not there": [
        "def double(size: 'torch.Tensor', *, unit: np.ndarray = None) -> List[Bytes]:\n"
        "    total: Bytes = 2 * size\n    return total"
    ],
    "typing": [
        "from typing import Final, List, Literal, Optional, TypedDict\n"
        "FACTOR: Final[int] = 2\n"
        "class Case(TypedDict):\n    size: int\n"
        "def double(size: Optional[int]) -> Literal[2]:\n"
        "    case: Case = {'size': size}\n    return FACTOR * case['size']"
    ],
    "dataclass": [
        "from dataclasses import asdict, astuple, dataclass, field, replace\n"
        "@dataclass(frozen=True, order=True)\n"
        "class Block:\n    size: int\n    rest: list[int] = field(default_factory=list)\n"
        "def double(size):\n"
        "    return sum(asdict(replace(Block(size), size=2 * size))['size'] for _ in 'x')"
    ],
    "private attributes": [
        "class _Pool:\n"
        "    __slots__ = ('_free', '__used')\n"
        "    def __init__(self, size):\n        self._free, self.__used = [size], 0\n"
        "    def __find(self):\n        return self._free[-1]\n"
        "    def __int__(self):\n        return 2 * self.__find()\n"
        "    def __eq__(self, other):\n        return int(self) == other\n"
        "def double(size):\n    return int(_Pool(size))"
    ],
    "dunder names": [
        'if __name__ == "__main__":\n    FACTOR = 2\n'
        "def __double(n):\n    return n * FACTOR\n"
        "def double(size):\n    return __double(size) if double.__name__ == 'double' else None"
    ],
    "reflection": [
        "import inspect\n"
        "def double(size):\n"
        "    kind = type(size)\n"
        "    assert hasattr(kind, 'bit_length') and isinstance(size,"
        " getattr(__builtins__, 'int', int))\n"
        "    return kind(eval('2 * n', {'n': size})) + 0 * len(vars(inspect))"
    ],
    "formats": ["def double(size):\n    return int('{:d}'.format(2 * size)) + int('%d' % 0)"],
    "itemgetter, namedtuple, isclose": [
        "import math, operator\nfrom collections import namedtuple\n"
        "Case = namedtuple('Case', 'size factor')\n"
        "def double(size):\n"
        "    case = Case(size, 2)\n    assert math.isclose(case.factor, 2.0)\n"
        "    return operator.mul(*operator.itemgetter(0, 1)(case))"
    ],
    "gc, sys, re, logging, pprint, time, warnings": [
        "import gc, logging, pprint, re, sys, time, warnings\n"
        "sys.setrecursionlimit(5000)\n"
        "logging.basicConfig(level=logging.DEBUG)\n"
        "def double(size):\n"
        "    gc.collect(); logging.info('size %d', size); pprint.pprint(size)\n"
        "    print('...', file=sys.stderr); warnings.warn('slow'); time.sleep(0)\n"
        "    return 2 * int(re.match(r'\\d+', str(size))[0])"
    ],
    "tqdm": [
        "from tqdm import tqdm\ndef double(size):\n    return sum(2 for _ in tqdm(range(size)))"
    ],
    "constants of torch": [
        "import torch\n"
        "def double(size):\n"
        "    item = torch.float16.itemsize\n"
        "    assert torch.finfo(torch.float32).bits == torch.iinfo(torch.int32).bits == 32\n"
        "    return item * size + torch.empty(0, dtype=torch.int8).element_size() - 1"
    ],
    "a generator, a lambda, a match, a walrus": [
        "pairs = lambda n: (yield from [n, n])\n"
        "def double(size):\n"
        "    match (total := sum(pairs(size))):\n"
        "        case int(real=found):\n            return found"
    ],
    "a partial function": [
        "from functools import partial, reduce\nimport operator\n"
        "double = partial(lambda factor, size: factor * size, 2)"
    ],
    "an object that can be called": [
        "class Double:\n    def __call__(self, size):\n        return 2 * size\ndouble = Double()"
    ],
    "a cache by hand": [
        "memo = {}\n"
        "def double(size):\n"
        "    if size not in memo:\n        memo[size] = 2 * size\n    return memo[size]"
    ],
    "deep recursion": [
        "import sys\nsys.setrecursionlimit(10_000)\n"
        "def down(n):\n    return 0 if n == 0 else 1 + down(n - 1)\n"
        "def double(size):\n    return 2 * size + down(3000) - 3000"
    ],
    "a table that another cell fills": [
        "table = {}",
        "for n in range(1, 201):\n    table[n] = 2 * n",
        "def double(size):\n    return table[size]",
    ],
    "a table that is filled step by step": [
        "steps = []\nsteps.append(1)\nsteps += [1]",
        "def double(size):\n    return sum(steps) * size",
    ],
    "a global that a function sets": [
        "def prepare():\n    global factor\n    factor = 2\nprepare()",
        "def double(size):\n    return factor * size",
    ],
    "a constant that grows": [
        "factor = 1\nfactor += 1",
        "def double(size):\n    return factor * size",
    ],
    "experiments in the answer's cell": [
        "import torch, vramlab\nimport matplotlib.pyplot as plt\nfrom vramlab_course import check",
        "import matplotlib.pyplot as plt, pandas as pd\n"
        "def double(size):\n    return 2 * size\n"
        "print(double(3))\n"
        "assert double(1) == 2, 'no'\n"
        "check('toy', 'double')\n"
        "with vramlab.VirtualGPU('T4'):\n"
        "    x = torch.zeros(3, device='cuda')\n"
        "    print(torch.cuda.memory_allocated())\n"
        "sizes = range(10)\n"
        "fig, ax = plt.subplots()\n"
        "ax.plot(sizes, [double(size) for size in sizes])\n"
        "plt.show()\n"
        "pd.DataFrame({'size': sizes})\n"
        "double(3)",
    ],
    "an experiment that fails": [
        "def double(size):\n    return 2 * size\ndouble('x', 'y')\nnope(3)"
    ],
    "widgets and what IPython shows": [
        "from IPython.display import display, Markdown\nimport ipywidgets as widgets\n"
        "def double(size):\n    display(Markdown('...'))\n    return 2 * size\n"
        "widgets.interact(double, size=(0, 10))\ndisplay(double(2))"
    ],
    "a magic for time": ["%%time\ndef double(size):\n    return 2 * size"],
    "magics in the cell": [
        "def double(size):\n    return 2 * size\n"
        "%timeit double(3)\n%time six = double(3)\n!nvidia-smi\nfiles = !ls\n%matplotlib inline"
    ],
    "a magic that times the cell": [
        "%%timeit -n 1\nx = 1",
        "%%capture out\ndef double(size):\n    return 2 * size",
    ],
    "a cell in another language": [
        "%%bash\necho double(",
        "def double(size):\n    return 2 * size",
    ],
    "help in other cells": ["double?\n?print", "def double(size):\n    return 2 * size"],
    "star import": ["from math import *\ndef double(size):\n    return floor(2.0 * size)"],
    "async": [
        "import asyncio\nasync def work(n):\n    return 2 * n\n"
        "def double(size):\n"
        "    coroutine = work(size)\n"
        "    try:\n        coroutine.send(None)\n"
        "    except StopIteration as end:\n        return end.value"
    ],
}


@pytest.mark.parametrize("cells", HONEST.values(), ids=HONEST)
def test_an_honest_answer_passes(judge: Judge, cells: list[str]) -> None:
    found = verdict(judge, *cells)
    assert found.grade is Grade.PASSED, found.message


WRONG = "def double(size):\n    return 0\n"

HOSTILE = {
    "files": "def double(size):\n    return int(open('/proc/self/maps').read(1), 16)",
    "folders": "import os\ndef double(size):\n    return len(os.listdir('/'))",
    "files at import": "import os\nseen = len(os.listdir('.'))\ndef double(size):\n    return seen",
    "descriptors": (
        "import os\ndef double(size):\n"
        "    return sum(len(os.read(n, 9)) for n in range(3, 64) if not os.isatty(n))"
    ),
    "environment": "import os\ndef double(size):\n    return int(os.environ['HOME'])",
    "vramlab again": (
        "import sys, importlib\nsys.meta_path.pop(0)\n"
        "import vramlab\ndef double(size):\n    return vramlab.VirtualGPU"
    ),
    "modules of the judge": (
        "import gc, types\n"
        "def double(size):\n"
        "    return [m for m in gc.get_objects() if isinstance(m, types.ModuleType)\n"
        "            and 'truth' in vars(m)][0].truth"
    ),
    "frames of the judge": (
        "import sys\ndef double(size):\n"
        "    frame = sys._getframe(1)\n"
        "    while frame:\n"
        "        for value in frame.f_locals.values():\n"
        "            if isinstance(value, dict) and 'truth' in value:\n"
        "                return value['truth']\n"
        "        frame = frame.f_back"
    ),
    "equals everything": (
        "class Any(int):\n    __eq__ = lambda self, other: True\n    __hash__ = int.__hash__\n"
        "def double(size):\n    return Any(0)"
    ),
    "says it is an int": (
        "class Liar:\n    __class__ = int\n    __index__ = __int__ = lambda self: 0\n"
        "    __eq__ = lambda self, other: True\n"
        "def double(size):\n    return Liar()"
    ),
    "pretends to be of NumPy": (
        "class Liar:\n    ndim = 0\n    item = lambda self: Liar()\n"
        "    __eq__ = lambda self, other: True\n"
        "Liar.__module__ = 'numpy'\ndef double(size):\n    return Liar()"
    ),
    "patched json": (
        'import json\njson.dumps = lambda reply: \'{"done": {"outcomes": [{"type": "int", \'\n'
        '    \'"value": true, "shown": ""}]}}\'\n' + WRONG
    ),
    "patched builtins": (
        "import builtins\nbuiltins.type = lambda value: int\n"
        "builtins.repr = lambda value: 'right'\n" + WRONG
    ),
    "tracing": (
        "import sys\n"
        "def trace(frame, event, argument):\n"
        "    if event == 'return' and isinstance(argument, dict):\n        argument['value'] = 7\n"
        "    return trace\n"
        "sys.settrace(trace)\nsys.setprofile(trace)\n" + WRONG
    ),
    "finalizers and exits": (
        "import atexit, threading, weakref, os\n"
        "atexit.register(lambda: os.write(5, b'x' * 99))\n"
        "class Last:\n    def __del__(self):\n        os._exit(0)\n"
        "last = Last()\n" + WRONG
    ),
    "exit": "import os\ndef double(size):\n    os._exit(0)",
    "abort": "import os\ndef double(size):\n    os.abort()",
    "system exit": "def double(size):\n    raise SystemExit(0)",
    "interrupt": "def double(size):\n    raise KeyboardInterrupt",
    "signals": "import os, signal\ndef double(size):\n"
    "    return os.kill(os.getppid(), signal.SIGKILL)",
    "processes": "import subprocess\ndef double(size):\n"
    "    return int(subprocess.check_output('id'))",
    "forks": "import os\ndef double(size):\n    return os.fork()",
    "network": (
        "import socket\ndef double(size):\n"
        "    return socket.create_connection(('127.0.0.1', 9), timeout=1).fileno()"
    ),
    "all memory": "def double(size):\n    return len([0] * 10**13)",
    "a gigantic text": "def double(size):\n    return 'x' * 10**8",
    "a gigantic number": "def double(size):\n    return 1 << 10**9",
    "gigantic numbers in a list": "def double(size):\n    return [1 << 10**8] * 3",
    "a number of many digits": "def double(size):\n    return str(1 << 10**6)",
    "a list in itself": "def double(size):\n    own = []\n    own.append(own)\n    return own",
    "endless output": "def double(size):\n    while True:\n        print('x' * 10**6)",
    "endless": "def double(size):\n    while True:\n        pass",
    "sleep": "import time\ndef double(size):\n    time.sleep(100)",
    "endless at the top": "while True:\n    pass\n" + WRONG,
    "too deep": "def double(size):\n    return double(size)",
    "far too deep": (
        "import sys\nsys.setrecursionlimit(10**9)\n"
        "class Deep:\n    def __repr__(self):\n        return repr(self)\n"
        "def double(size):\n    return repr(Deep())"
    ),
    "a text of no file": "def double(size):\n    return '\\ud800\\x1b[2J'",
    "counts calls": (
        "calls = []\n"
        "def double(size):\n    calls.append(size)\n    return 2 * size if len(calls) < 3 else 0"
    ),
    "knows the visible cases": "def double(size):\n    return {1: 2, 2: 4}.get(size, 0)",
    "bool": "def double(size):\n    return True",
    "float that is not exact": "def double(size):\n    return 2 * size + 0.5",
    "infinite": "def double(size):\n    return float('inf')",
    "no decimal": "from decimal import Decimal\ndef double(size):\n    return Decimal('Infinity')",
    "a large decimal": "from decimal import Decimal\ndef double(size):\n"
    "    return Decimal('1e999999')",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_answer_earns_nothing_and_the_next_is_judged(
    judge: Judge, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pool, "ANSWER_SECONDS", 2)
    found = verdict(judge, source)
    assert (found.grade, found.score) == (Grade.FAILED, 0)
    assert 0 < len(found.message) < 500
    assert len(str(found)) < 5000
    assert verdict(judge, f"def double(size):\n    return {len(source)} * size").cases


TOLD = {
    "a formula that the notebook imports": (
        ["from vramlab_course.formulas import zero\ndef double(size):\n    return zero(size)"],
        "ModuleNotFoundError: vramlab_course is not there for an answer that is computed, not "
        "measured: write out what you need of it, such as a formula\n"
        "    in the line: from vramlab_course.formulas import zero",
    ),
    "a syntax error in the answer": (
        ["x = 1", "\ndef double(size):\n    if size\n        return 2\n"],
        "SyntaxError: expected ':'\n"
        "    in line 3 of code cell 2, which begins with: def double(size):\n"
        "    in the line: if size",
    ),
    "a syntax error in a helper": (
        ["def twice(n:\n    return 2 * n", "def double(size):\n    return twice(size)"],
        "SyntaxError: '(' was never closed\n"
        "    in line 1 of code cell 1, which begins with: def twice(n:\n"
        "    in the line: def twice(n:",
    ),
    "a statement that should have given something": (
        ["factor = 1 // 0", "def double(size):\n    return factor * size"],
        "ZeroDivisionError: integer division or modulo by zero\n    in the line: factor = 1 // 0",
    ),
    "an error in the answer's own words": (
        ["def double(size):\n    raise ValueError('double: passed in 4 cases')"],
        'ValueError: "double: passed in 4 cases"\n'
        "    in the line: raise ValueError('double: passed in 4 cases')",
    ),
    "an undefined name": (
        ["def double(size):\n    return twice(size)"],
        "NameError: name 'twice' is not defined\n    in the line: return twice(size)",
    ),
    "a float": (
        ["def double(size):\n    return size / 3"],
        "double gave the float 0.3333333333333333, but bytes are counted in whole numbers: divide "
        "with //, and round up with -(-a // b).",
    ),
    "no end": (
        ["def double(size):\n    while True:\n        pass"],
        "No answer: it did not end within 2 seconds.",
    ),
}


@pytest.mark.parametrize(("cells", "told"), TOLD.values(), ids=TOLD)
def test_what_is_wrong_is_told(
    judge: Judge, cells: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pool, "ANSWER_SECONDS", 2)
    assert verdict(judge, *cells).message == told


def test_a_stub_is_not_answered(judge: Judge) -> None:
    stub = "def double(size):\n    raise NotImplementedError"
    assert verdict(judge, stub).grade is Grade.UNANSWERED


def test_the_order_of_cases_is_not_that_of_the_exercise(pool: JobPool) -> None:
    source = "calls = []\ndef double(size):\n    calls.append(size)\n    return len(calls)"
    configs = [{"size": size} for size in range(8)]
    outcomes = pool.answers(TOY, TOY.task("double"), source, configs)
    places = [outcome["value"] for outcome in outcomes]
    assert sorted(places) == list(range(1, 9))
    assert places != sorted(places)
