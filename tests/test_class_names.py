"""A class has a name of its own: who reads it anywhere knows which one is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import vramlab

ROOT = Path(vramlab.__file__).parents[1]

SHARED = {
    "Run": "a training's settings (programs), and one run of a learner's repair (tasks)",
}
"""Names that two classes may have, and what they are of. No module knows both."""


def places() -> dict[str, list[str]]:
    """Where classes of each name are defined, private ones left out."""
    found = defaultdict(list)
    for package in ("vramlab", "vramlab_course", "vramlab_classroom"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def test_no_two_classes_have_one_name() -> None:
    found = places()
    assert len(found) > 300
    twice = {name: where for name, where in found.items() if len(where) > 1}
    assert {name: where for name, where in twice.items() if name not in SHARED} == {}
    assert all(len(twice.get(name, ())) <= 2 for name in SHARED)
