"""An answer is source text: the cell that binds the name, and what that needs."""

from __future__ import annotations

from typing import Any

import pytest

from vramlab_classroom.judge.answers import find_answer


def test_answer_is_the_last_cell_that_binds_the_name() -> None:
    cells = ["def f():\n    return 1", "g = 3", "def f():\n    return 2"]
    assert find_answer(cells, "f") == "def f():\n    return 2"


def test_answer_brings_the_helpers_it_needs_and_no_others() -> None:
    cells = [
        "import math\nimport os",
        "UNIT = 512",
        "def up(n):\n    return math.ceil(n / UNIT) * UNIT",
        "def f(n):\n    return up(n)",
        "launch_missiles()",
    ]
    assert find_answer(cells, "f") == (
        "import math\n\nUNIT = 512\n\n"
        "def up(n):\n    return math.ceil(n / UNIT) * UNIT\n\n"
        "def f(n):\n    return up(n)"
    )


def test_helpers_come_after_what_they_need_whatever_ran_first() -> None:
    # In a live notebook the cell with UNIT may have been run again at the end.
    cells = [
        "def up(n, unit=UNIT):\n    return n + unit",
        "def f(n):\n    return up(n)",
        "UNIT = 4",
    ]
    namespace: dict[str, object] = {}
    exec(find_answer(cells, "f"), namespace)
    assert eval("f(1)", namespace) == 5


def test_local_names_are_not_taken_for_helpers() -> None:
    cells = ["x = torch.zeros(3)", "def f(n):\n    x = n\n    return [x for x in range(x)]"]
    assert find_answer(cells, "f") == cells[1]


def test_names_in_nested_functions_and_decorators_are_helpers() -> None:
    cells = [
        "from functools import cache",
        "STEP = 2",
        "@cache\ndef f(n):\n    def inner():\n        return STEP\n    return inner()",
    ]
    assert find_answer(cells, "f") == "\n\n".join([cells[0], cells[1], cells[2]])


def test_two_functions_that_call_each_other_come_once_each() -> None:
    cells = ["def g(n):\n    return f(n - 1)", "def f(n):\n    return g(n) if n else 0"]
    assert find_answer(cells, "f") == "\n\n".join(cells)


def test_magics_in_other_cells_do_no_harm() -> None:
    cells = ["%timeit 3\n!ls\nUNIT = 2", "def f():\n    return UNIT"]
    assert find_answer(cells, "f") == "UNIT = 2\n\ndef f():\n    return UNIT"


def test_of_an_import_of_several_modules_only_the_needed_one_comes() -> None:
    cells = ["import math, vramlab\nfrom os import path, sep", "def f():\n    return math.pi, sep"]
    assert find_answer(cells, "f") == f"import math\n\nfrom os import sep\n\n{cells[1]}"


REGISTERED = {
    "a decorator that writes into a dict": (
        "KNOWN = {}\ndef register(name):\n    def keep(f):\n        KNOWN[name] = f\n"
        "        return f\n    return keep",
        "@register('twice')\ndef twice(x):\n    return 2 * x",
        "def f(x):\n    return KNOWN['twice'](x)",
    ),
    "a method of a list": (
        "HOOKS = []",
        "@HOOKS.append\ndef twice(x):\n    return 2 * x",
        "def f(x):\n    return HOOKS[0](x)",
    ),
    "a class that keeps those that derive from it": (
        "class Known:\n    all = {}\n    def __init_subclass__(cls):\n"
        "        Known.all[cls.__name__] = cls",
        "class Base(Known):\n    pass",
        "class Twice(Base):\n    def __call__(self, x):\n        return 2 * x",
        "def f(x):\n    return Known.all['Twice']()(x)",
    ),
    "a function for several classes": (
        "import functools\n@functools.singledispatch\ndef double(x):\n    return 0",
        "@double.register\ndef _(x: int):\n    return 2 * x",
        "@double.register(str)\ndef _(x):\n    return x + x",
        "def f(x):\n    return double(x) if double('a') == 'aa' else 0",
    ),
    "a function that is called": (
        "SIZES = {}\ndef keep(name, size):\n    SIZES.update({name: size})",
        "for name, size in [('a', 2)]:\n    keep(name, size)",
        "def f(x):\n    return SIZES['a'] * x",
    ),
}


@pytest.mark.parametrize("cells", REGISTERED.values(), ids=REGISTERED)
def test_what_registers_itself_comes_with_the_answer(cells: tuple[str, ...]) -> None:
    namespace: dict[str, Any] = {}
    exec(find_answer(cells, "f"), namespace)
    assert namespace["f"](3) == 6


@pytest.mark.parametrize(
    "cell",
    [
        "from vramlab_course.workshops import watch\nwatch('B', f)",
        "from vramlab_course.workshops import watch\nwatch('B', f).show()",
        "import vramlab_course.workshops as w\nfor _ in range(2):\n    w.watch('B', f)",
        "from vramlab import VirtualGPU\ngpu = VirtualGPU()\ngpu.run(f)",
        "from vramlab_course.workshops import watch\ndef look(g):\n    watch('B', g)\nlook(f)",
        "import matplotlib.pyplot as plt\nplt.plot(f)",
    ],
)
def test_what_measures_or_draws_an_answer_does_not_change_it(cell: str) -> None:
    cells = ["def f():\n    return 1", cell, "def g():\n    return f() + 1"]
    assert find_answer(cells, "g") == "def f():\n    return 1\n\ndef g():\n    return f() + 1"
