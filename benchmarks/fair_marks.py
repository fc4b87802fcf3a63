"""A class of all kinds, and the marks that a fair person would give it.

    python -m benchmarks.fair_marks

Hands in exercise 02 for forty students, grades them by the commands of docs/teaching.md, and writes
a table of what each got against what a person who reads the answers would have given.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.graders import SEED
from benchmarks.submissions import EXERCISE, ROOT, Notebook, released, solutions, vary
from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.notebooks import TEST_SUFFIX, grade_id

POINTS = {task.name: float(task.points) for task in find_exercise(EXERCISE).tasks}
COMMAND = [sys.executable, "-c", "import sys; from vramlab.cli import main; sys.exit(main())"]


@dataclass(frozen=True)
class Student:
    """What one student hands in, and deserves."""

    answers: Mapping[str, str] = field(default_factory=dict)
    """By task, instead of the right ones."""

    loses: Mapping[str, float] = field(default_factory=dict)
    """Points by task that a person would take off."""

    change: Callable[[Notebook], Notebook | bytes] = lambda notebook: notebook
    """What else was done to the notebook."""

    is_unreadable: bool = False
    """A person would ask for the file once more."""

    @property
    def fair(self) -> float | None:
        """Points that a person would give; None for none yet."""
        return None if self.is_unreadable else sum(POINTS.values()) - sum(self.loses.values())


def answer(task: str, body: str, loses: float | None = None) -> Student:
    """Answer one task in another way: wrong, if it loses points; with None, all of them."""
    argument = {
        "block_bytes": "requested_bytes",
        "segment_bytes": "requested_bytes",
        "reserved_bytes": "tensor_bytes",
        "releasable_bytes": "stats",
        "row_norms": "load, count",
    }[task]
    lines = "\n    ".join(body.splitlines())
    source = f"def {task}({argument}):\n    {lines}"
    return Student({task: source}, {task: POINTS[task] if loses is None else loses})


def right(task: str, body: str) -> Student:
    """Answer one task in a style of one's own."""
    return answer(task, body, 0)


def without(*names: str) -> Callable[[Notebook], Notebook]:
    """Delete cells, by their names."""

    def delete(notebook: Notebook) -> Notebook:
        notebook["cells"] = [cell for cell in notebook["cells"] if grade_id(cell) not in names]
        return notebook

    return delete


def with_cell(source: str) -> Callable[[Notebook], Notebook]:
    """Put a cell on top."""

    def add(notebook: Notebook) -> Notebook:
        cell = {"cell_type": "code", "id": "mine", "metadata": {}, "source": source}
        notebook["cells"].insert(0, {**cell, "outputs": [], "execution_count": None})
        return notebook

    return add


def with_outputs(notebook: Notebook) -> Notebook:
    """Print a lot."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x" * 2**20}]
    return notebook


NUMPY_BLOCK = "import numpy as np\nreturn np.int64(np.ceil(requested_bytes / 512)) * 512"
LOOP = "size = 0\nwhile size < requested_bytes:\n    size += 512\nreturn size"
NORMS = """norms = []
for index in range(count):
    batch = load(index)
    norms.append(batch.square_().sum(dim=1).sqrt())
    del batch
print(torch.cuda.memory_allocated())
return torch.cat(norms)"""
HOST = (
    """return torch.cat([load(i).cpu().square().sum(dim=1).sqrt() for i in range(count)]).cuda()"""
)
KEEPS = """batches = [load(index) for index in range(count)]
return torch.cat([batch.square_().sum(dim=1).sqrt() for batch in batches])"""
ALL = dict(POINTS)
UNANSWERED = "raise NotImplementedError"

CLASS: Mapping[str, Student] = {
    "the solution": Student(),
    "numpy": right("block_bytes", NUMPY_BLOCK),
    "a loop": right("block_bytes", LOOP),
    "an exact float": right("block_bytes", "return -(-requested_bytes // 512) * 512.0"),
    "math and annotations": right(
        "block_bytes",
        "import math\nsize: 'Bytes' = math.ceil(requested_bytes / 512) * 512\nreturn size",
    ),
    "prints": right(
        "block_bytes", "print(requested_bytes)\nreturn -(-requested_bytes // 512) * 512"
    ),
    "a repair with prints": right("row_norms", NORMS),
    "a plot in the notebook": Student(
        change=with_cell("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    ),
    "magics": Student(change=with_cell("%load_ext autoreload\n!nvidia-smi\n%timeit 1 + 1")),
    "huge outputs": Student(change=with_outputs),
    "edges are one step more": answer(
        "block_bytes", "return (requested_bytes // 512 + 1) * 512", loses=1
    ),
    "the request itself": answer("block_bytes", "return requested_bytes"),
    "a page": answer("block_bytes", "return 2 * 2**20"),
    "no block for nothing": answer(
        "block_bytes", "return max(512, -(-requested_bytes // 512) * 512)", loses=0.5
    ),
    "a float": answer("block_bytes", "return requested_bytes / 512 * 512"),
    "two MiB steps": answer(
        "segment_bytes", "return -(-requested_bytes // 2**21) * 2**21", loses=1
    ),
    "the block": answer("segment_bytes", "return block_bytes(requested_bytes)"),
    "20 MiB for all": answer(
        "segment_bytes",
        "if requested_bytes <= 2**20:\n    return 2**21\n"
        "return -(-requested_bytes // (20 * 2**20)) * 20 * 2**20",
        loses=2,
    ),
    "the border by request": answer(
        "segment_bytes",
        "if requested_bytes <= 2**20:\n    return 2**21\n"
        "if requested_bytes < 10 * 2**20:\n    return 20 * 2**20\n"
        "return -(-requested_bytes // 2**21) * 2**21",
        loses=0.5,
    ),
    "packed perfectly": answer(
        "reserved_bytes",
        "total = sum(map(block_bytes, tensor_bytes))\nreturn -(-total // 2**21) * 2**21",
    ),
    "a segment each": answer("reserved_bytes", "return 2**21 * len(tensor_bytes)"),
    "all that is cached": answer(
        "releasable_bytes",
        "return stats['reserved_bytes.all.current'] - stats['allocated_bytes.all.current']",
    ),
    "what stays": answer("releasable_bytes", "return stats['inactive_split_bytes.all.current']"),
    "a repair that keeps": answer("row_norms", KEEPS),
    "a repair that returns nothing": answer("row_norms", "return None"),
    "one task open": answer("reserved_bytes", UNANSWERED),
    "the first task open": answer("block_bytes", UNANSWERED),
    "all open": Student({task: f"def {task}(*a, **k):\n    {UNANSWERED}" for task in POINTS}, ALL),
    "a syntax error": Student(
        {"segment_bytes": "def segment_bytes(n:\n    return 1"}, {"segment_bytes": 3}
    ),
    "the first task no Python": Student({"block_bytes": "def block_bytes(:"}, {"block_bytes": 2}),
    "tests deleted": Student(change=without(*(f"{task}{TEST_SUFFIX}" for task in POINTS))),
    "an answer deleted": Student({}, {"reserved_bytes": 4}, without("reserved_bytes")),
    "by heart": answer(
        "block_bytes",
        "return {4: 512, 512: 512, 513: 1024, 4000: 4096, 4096: 4096, 0: 0}[requested_bytes]",
    ),
    "measures": answer(
        "block_bytes",
        "import torch\nt = torch.empty(requested_bytes, device='cuda')\n"
        "return torch.cuda.memory_allocated()",
    ),
    "reads the seed": answer(
        "segment_bytes", "return int(open('autograder/hidden_seed.txt').read(), 16)"
    ),
    "ends the process": answer("segment_bytes", "import os\nos._exit(0)"),
    "never ends": answer("reserved_bytes", "while True:\n    pass"),
    "takes all memory": answer("reserved_bytes", "return len([0] * 10**12)"),
    "on the host": answer("row_norms", HOST),
    "no notebook": Student(change=lambda notebook: b"%PDF-1.7", is_unreadable=True),
}


def submission(number: int, student: Student) -> bytes:
    """Write what a student hands in."""
    notebook = copy.deepcopy(released())
    answers = {
        task: student.answers.get(task) or vary(source, number, wrong=False)
        for task, source in solutions().items()
    }
    for cell in notebook["cells"]:
        if (name := grade_id(cell)) in answers:
            cell["source"] = answers[name or ""]
    changed = student.change(notebook)
    return changed if isinstance(changed, bytes) else json.dumps(changed).encode()


def lay_out(folder: Path) -> None:
    """Make a course, and beside it what was handed in."""
    for name in ("nbgrader_config.py", "autograder/nbgrader_config.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    master = Path("solutions", EXERCISE, f"{EXERCISE}.ipynb")
    (folder / master).parent.mkdir(parents=True)
    (folder / master).write_bytes((ROOT / master).read_bytes())
    (folder / "autograder" / "hidden_seed.txt").write_text(SEED)
    for number, student in enumerate(CLASS.values()):
        place = folder / "handed-in" / f"student-{number:02}"
        place.mkdir(parents=True)
        (place / f"{EXERCISE}.ipynb").write_bytes(submission(number, student))


def main() -> None:
    """Grade the class, and write the table."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        lay_out(folder)
        for words in (("collect", "handed-in/"), ("grade",), ("report", "02")):
            print("$ vramlab", *words, flush=True)
            subprocess.run([*COMMAND, *words], cwd=folder, check=False)
        written = subprocess.run(
            [*COMMAND, "scores", "02"], cwd=folder, check=True, capture_output=True, text=True
        )
    rows = csv.DictReader(io.StringIO(written.stdout))
    print("\n| answer | a fair person | vramlab grade | |\n| --- | --- | --- | --- |")
    for (kind, student), row in zip(CLASS.items(), rows, strict=True):
        fair = "ask again" if student.fair is None else f"{student.fair:g}"
        given = row["score"] or "for a human"
        same = student.fair is None if not row["score"] else float(given) == student.fair
        print(f"| {kind} | {fair} | {given} | {'' if same else 'differs'} |")


if __name__ == "__main__":
    main()
