"""Submissions that try to earn what they have not, or to spoil the grading of others.

Each function takes the solution and the released notebook of exercise 02, and returns a submission.
`EARNS` says what each may earn at most: for the tasks named, nothing; for the others, full marks.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import nbformat
from classroom import Notebook, cell, with_cells

Submission = Notebook | str
Attack = Callable[[Notebook, Notebook], Submission]

ALL = frozenset(["block_bytes", "segment_bytes", "reserved_bytes", "releasable_bytes", "row_norms"])
NONE: frozenset[str] = frozenset()

ATTACKS: dict[str, tuple[Attack, frozenset[str]]] = {}


def attack(*, loses: frozenset[str]) -> Callable[[Attack], Attack]:
    """Register a submission, with the tasks for which it must not get a point."""

    def register(function: Attack) -> Attack:
        ATTACKS[function.__name__] = (function, loses)
        return function

    return register


def code_cell(source: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": "mine",
        "metadata": {},
        "outputs": [],
        "source": source,
    }


def with_first_cell(notebook: Notebook, source: str) -> Notebook:
    changed = copy.deepcopy(notebook)
    changed["cells"].insert(0, code_cell(source))
    return changed


# Cheating inside one's own kernel: nothing of it is ever executed.


@attack(loses=ALL)
def input_transformer(solution: Notebook, released: Notebook) -> Submission:
    cheat = "get_ipython().input_transformers_cleanup.append(lambda lines: ['pass\\n'])"
    return with_first_cell(released, cheat)


@attack(loses=ALL)
def patched_grading(solution: Notebook, released: Notebook) -> Submission:
    cheat = (
        "import sys, types, vramlab_classroom.judge, vramlab_classroom.judge.judge as judge\n"
        "from vramlab_classroom.judge.verdict import Grade, Verdict\n"
        "vramlab_classroom.judge.check = lambda *a: None\n"
        "judge.Judge.judge = lambda self, e, n, c: Verdict(n, 99, Grade.PASSED, '')\n"
        "sys.modules['vramlab_classroom.judge'] = types.SimpleNamespace(check=print)\n"
    )
    return with_first_cell(released, cheat)


@attack(loses=ALL)
def patched_torch(solution: Notebook, released: Notebook) -> Submission:
    cheat = (
        "import torch\n"
        "torch.cuda.memory_allocated = torch.cuda.memory_reserved = lambda *a: 0\n"
        "torch.cuda.max_memory_allocated = lambda *a: 0\n"
    )
    return with_first_cell(released, cheat)


@attack(loses=NONE)
def exits_early(solution: Notebook, released: Notebook) -> Submission:
    return with_first_cell(solution, "import os, sys\nos._exit(0)\nsys.exit(1)")


@attack(loses=NONE)
def noise_on_stderr(solution: Notebook, released: Notebook) -> Submission:
    noise = "import sys, warnings\nwarnings.warn('w')\nprint('x' * 10**9, file=sys.stderr)"
    return with_first_cell(solution, noise)


@attack(loses=NONE)
def never_ends_elsewhere(solution: Notebook, released: Notebook) -> Submission:
    return with_first_cell(solution, "while True:\n    pass")


BEFORE_ANSWERS = frozenset(ATTACKS)


# Cheating inside an answer.


@attack(loses=frozenset({"block_bytes"}))
def equals_everything(solution: Notebook, released: Notebook) -> Submission:
    answer = (
        "class Anything(int):\n"
        "    def __eq__(self, other):\n        return True\n"
        "    def __hash__(self):\n        return 0\n"
        "def block_bytes(requested_bytes):\n    return Anything(0)\n"
    )
    return with_cells(solution, {"block_bytes": answer})


@attack(loses=frozenset({"block_bytes"}))
def measures_instead_of_predicting(solution: Notebook, released: Notebook) -> Submission:
    answer = (
        "import torch, vramlab\n"
        "def block_bytes(requested_bytes):\n"
        "    with vramlab.VirtualGPU('T4'):\n"
        "        x = torch.empty(requested_bytes, dtype=torch.uint8, device='cuda')\n"
        "        return torch.cuda.memory_allocated()\n"
    )
    return with_cells(solution, {"block_bytes": answer})


@attack(loses=frozenset({"segment_bytes"}))
def measures_through_a_helper(solution: Notebook, released: Notebook) -> Submission:
    helper = (
        "import importlib\n"
        "task = importlib.import_module('vramlab_course.lessons.l02_pages_and_blocks.tasks')\n"
        "def truth(n):\n    return task._measure_segment(n)\n"
    )
    answer = "def segment_bytes(requested_bytes):\n    return truth(requested_bytes)"
    return with_first_cell(with_cells(solution, {"segment_bytes": answer}), helper)


@attack(loses=frozenset({"segment_bytes"}))
def reads_the_seed(solution: Notebook, released: Notebook) -> Submission:
    answer = (
        "def segment_bytes(requested_bytes):\n"
        "    seed = open('/tmp/hidden_seed.txt').read()\n"
        "    return len(seed)\n"
    )
    return with_cells(solution, {"segment_bytes": answer})


@attack(loses=frozenset({"segment_bytes"}))
def climbs_out_of_the_namespace(solution: Notebook, released: Notebook) -> Submission:
    answer = (
        "def segment_bytes(requested_bytes):\n"
        "    for kind in ().__class__.__base__.__subclasses__():\n"
        "        if kind.__name__ == 'Popen':\n"
        "            kind(['touch', '/tmp/climbed-out'])\n"
        "    return 2097152\n"
    )
    return with_cells(solution, {"segment_bytes": answer})


@attack(loses=frozenset({"row_norms"}))
def repair_patches_the_counters(solution: Notebook, released: Notebook) -> Submission:
    answer = (
        "import torch\n"
        "def row_norms(load, count):\n"
        "    torch.cuda.set_per_process_memory_fraction(1.0)\n"
        "    norms = []\n"
        "    for index in range(count):\n"
        "        batch = load(index)\n"
        "        squares = batch * batch\n"
        "        norms.append(squares.sum(dim=1).sqrt())\n"
        "    return torch.cat(norms)\n"
    )
    return with_cells(solution, {"row_norms": answer})


@attack(loses=frozenset({"row_norms"}))
def repair_hides_from_the_gpu(solution: Notebook, released: Notebook) -> Submission:
    answer = (
        "import torch\n"
        "from torch.utils._python_dispatch import _disable_current_modes\n"
        "def row_norms(load, count):\n"
        "    with _disable_current_modes():\n"
        "        return torch.cat([(load(i) ** 2).sum(dim=1).sqrt() for i in range(count)])\n"
    )
    return with_cells(solution, {"row_norms": answer})


@attack(loses=frozenset({"row_norms"}))
def repair_replaces_the_comparison(solution: Notebook, released: Notebook) -> Submission:
    answer = (
        "import torch\n"
        "torch.equal = lambda a, b: True\n"
        "def row_norms(load, count):\n"
        "    return torch.zeros(1, device='cuda')\n"
    )
    return with_cells(solution, {"row_norms": answer})


@attack(loses=frozenset({"segment_bytes"}))
def never_ends(solution: Notebook, released: Notebook) -> Submission:
    answer = "def segment_bytes(requested_bytes):\n    while True:\n        pass"
    return with_cells(solution, {"segment_bytes": answer})


@attack(loses=frozenset({"segment_bytes"}))
def takes_all_memory(solution: Notebook, released: Notebook) -> Submission:
    answer = "def segment_bytes(requested_bytes):\n    return len([0] * 10**13)"
    return with_cells(solution, {"segment_bytes": answer})


@attack(loses=frozenset({"segment_bytes"}))
def phones_home(solution: Notebook, released: Notebook) -> Submission:
    answer = (
        "import socket\n"
        "def segment_bytes(requested_bytes):\n"
        "    with socket.create_connection(('127.0.0.1', 9)) as home:\n"
        "        return int(home.recv(100))\n"
    )
    return with_cells(solution, {"segment_bytes": answer})


@attack(loses=frozenset({"segment_bytes"}))
def starts_threads(solution: Notebook, released: Notebook) -> Submission:
    answer = (
        "import threading\n"
        "def segment_bytes(requested_bytes):\n"
        "    threading.Thread(target=lambda: 0).start()\n"
        "    return 2097152\n"
    )
    return with_cells(solution, {"segment_bytes": answer})


@attack(loses=frozenset({"segment_bytes"}))
def forks_on(solution: Notebook, released: Notebook) -> Submission:
    answer = "import os\ndef segment_bytes(requested_bytes):\n    os.fork()\n    os._exit(0)"
    return with_cells(solution, {"segment_bytes": answer})


@attack(loses=frozenset({"segment_bytes"}))
def exits_in_the_answer(solution: Notebook, released: Notebook) -> Submission:
    answer = "def segment_bytes(requested_bytes):\n    raise SystemExit"
    return with_cells(solution, {"segment_bytes": answer})


@attack(loses=frozenset({"segment_bytes"}))
def says_what_no_file_can_hold(solution: Notebook, released: Notebook) -> Submission:
    answer = (
        r"def segment_bytes(n):\n    raise ValueError('\ud800 \x1b[2J <script>alert(1)</script>')"
    )
    return with_cells(solution, {"segment_bytes": answer.replace(r"\n", "\n")})


@attack(loses=NONE)
def holds_what_no_file_can_hold(solution: Notebook, released: Notebook) -> Submission:
    return with_first_cell(solution, "# half a pair of surrogates, as JSON can write it: \ud800")


@attack(loses=NONE)
def prints_a_gigabyte(solution: Notebook, released: Notebook) -> Submission:
    changed = copy.deepcopy(solution)
    cell(changed, "segment_bytes")["source"] += "\nfor _ in range(1000):\n    print('x' * 10**6)\n"
    return changed


@attack(loses=frozenset({"segment_bytes"}))
def nested_too_deep(solution: Notebook, released: Notebook) -> Submission:
    deep = "(" * 100_000 + ")" * 100_000
    return with_cells(solution, {"segment_bytes": f"def segment_bytes(n):\n    return {deep}"})


@attack(loses=frozenset({"segment_bytes"}))
def null_bytes(solution: Notebook, released: Notebook) -> Submission:
    return with_cells(solution, {"segment_bytes": "def segment_bytes(n):\n    return '\0'"})


IN_ANSWERS = frozenset(ATTACKS) - BEFORE_ANSWERS
"""Attacks that are only an answer: the judge meets them, whichever code reads the notebook."""


# Tampering with nbgrader's cells: afterwards everything is as it was released.


@attack(loses=ALL)
def test_cells_edited(solution: Notebook, released: Notebook) -> Submission:
    return with_cells(released, {f"{task}-test": "pass" for task in ALL})


@attack(loses=ALL)
def test_cells_deleted(solution: Notebook, released: Notebook) -> Submission:
    changed = copy.deepcopy(released)
    for task in ALL:
        changed["cells"].remove(cell(changed, f"{task}-test"))
    return changed


@attack(loses=ALL)
def all_cells_deleted(solution: Notebook, released: Notebook) -> Submission:
    return {**released, "cells": []}


@attack(loses=frozenset({"block_bytes"}))
def points_raised(solution: Notebook, released: Notebook) -> Submission:
    wrong = "def block_bytes(requested_bytes):\n    return 1"
    changed = with_cells(solution, {"block_bytes": wrong})
    for each in changed["cells"]:
        if "points" in each["metadata"].get("nbgrader", {}):
            each["metadata"]["nbgrader"]["points"] = 1000
    # The other answers no longer need the wrong one.
    helper = "def block_bytes_(n):\n    return -(-n // 512) * 512"
    for task in ("segment_bytes", "reserved_bytes"):
        source = cell(changed, task)["source"].replace("block_bytes(", "block_bytes_(")
        cell(changed, task)["source"] = f"{helper}\n{source}"
    return changed


@attack(loses=frozenset({"segment_bytes"}))
def cells_repointed(solution: Notebook, released: Notebook) -> Submission:
    """The test of a wrong answer is to count as that of a right one, and the other way round."""
    changed = with_cells(solution, {"segment_bytes": "def segment_bytes(n):\n    return 1"})
    reserved = cell(changed, "reserved_bytes")
    right = cell(solution, "segment_bytes")["source"].replace("segment_bytes(", "segment_bytes_(")
    source = reserved["source"].replace("segment_bytes(", "segment_bytes_(")
    reserved["source"] = f"{right}\n{source}"
    for name in ("segment_bytes", "segment_bytes-test"):
        other = name.replace("segment", "block")
        cell(changed, name)["metadata"]["nbgrader"]["grade_id"] = "for now"
        cell(changed, other)["metadata"]["nbgrader"]["grade_id"] = name
        cell(changed, "for now")["metadata"]["nbgrader"]["grade_id"] = other
    # So that no answer is missing above its test.
    answers = [each for each in changed["cells"] if "def " in each["source"]]
    changed["cells"] = [*answers, *(each for each in changed["cells"] if each not in answers)]
    return changed


@attack(loses=NONE)
def metadata_ruined(solution: Notebook, released: Notebook) -> Submission:
    changed = copy.deepcopy(solution)
    ruins: list[dict[str, Any]] = [
        {"grade": False},
        {"schema_version": 99},
        {"schema_version": 1, "nonsense": True},
        {"solution": True, "locked": False},
        {"grade_id": "no-such-cell", "task": True},
    ]
    marked = [each for each in changed["cells"] if "nbgrader" in each["metadata"]]
    for index, each in enumerate(marked):
        each["metadata"]["nbgrader"].update(ruins[index % len(ruins)])
    return changed


@attack(loses=NONE)
def metadata_removed(solution: Notebook, released: Notebook) -> Submission:
    changed = copy.deepcopy(solution)
    for each in changed["cells"]:
        each["metadata"] = {}
    return changed


@attack(loses=NONE)
def graded_cells_twice(solution: Notebook, released: Notebook) -> Submission:
    changed = copy.deepcopy(solution)
    for task in ALL:
        for name in (task, f"{task}-test"):
            changed["cells"].append(copy.deepcopy(cell(solution, name)))
    return changed


@attack(loses=NONE)
def foreign_kernel(solution: Notebook, released: Notebook) -> Submission:
    changed = copy.deepcopy(solution)
    changed["metadata"]["kernelspec"] = {"name": "bash", "display_name": "Bash", "language": "sh"}
    return changed


@attack(loses=NONE)
def outputs_of_success(solution: Notebook, released: Notebook) -> Submission:
    changed = copy.deepcopy(solution)
    for each in changed["cells"]:
        if each["cell_type"] == "code":
            each["outputs"] = [{"output_type": "stream", "name": "stderr", "text": "boom"}]
    return changed


# Notebooks as others than today's JupyterLab write them.


@attack(loses=NONE)
def format_before_cell_ids(solution: Notebook, released: Notebook) -> Submission:
    changed = copy.deepcopy(solution)
    changed["nbformat_minor"] = 0
    for each in changed["cells"]:
        del each["id"]
    return changed


@attack(loses=NONE)
def format_of_2011(solution: Notebook, released: Notebook) -> Submission:
    old = nbformat.convert(nbformat.from_dict(solution), 3)
    return nbformat.writes(old, version=3)


# Files that are no such notebook. Not processed, so their score is unknown.

BROKEN: dict[str, str] = {
    "empty_file": "",
    "no_json": "this is not a notebook",
    "truncated": '{"cells": [{"cell_type": "code", "sou',
    "nested_without_end": "[" * 1_000_000,
    "not_an_object": "[1, 2, 3]",
    "no_cells": json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}}),
    "from_the_future": json.dumps(
        {"nbformat": 99, "nbformat_minor": 0, "metadata": {}, "cells": []}
    ),
}
