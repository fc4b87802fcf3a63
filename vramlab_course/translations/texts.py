"""What is to be translated: Markdown cells, and what predictions and widgets say."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Notebook = Mapping[str, Any]
"""As JSON has it."""


@dataclass(frozen=True)
class Text:
    """Something that a learner reads.

    Attributes:
        place: the id of its cell; '' of what widgets say everywhere.
        english: it.
    """

    place: str
    english: str


def texts_of_notebook(notebook: Notebook) -> list[Text]:
    """Give a notebook's texts in their order, each once."""
    return list(dict.fromkeys(_texts_of_notebook(notebook)))


def _texts_of_notebook(notebook: Notebook) -> Iterator[Text]:
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield Text(cell["id"], source)
        elif "predict(" in source:
            for call in _calls(ast.parse(source), "predict"):
                yield from (Text(cell["id"], words) for words in _of_prediction(call))


def texts_of_widgets(folder: Path) -> list[Text]:
    """Give what `say` says in the modules of a folder, each once: strings, and names of some."""
    found = []
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = dict(_constants(tree))
        for call in _calls(tree, "say"):
            words = named.get(ast.unparse(call.args[0]), call.args[0])
            found += [Text("", each) for each in _strings(words)]
    return list(dict.fromkeys(found))


def _constants(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in module.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield ast.unparse(node.targets[0]), node.value


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    """Calls of a function, as they stand one after the other."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        if ast.unparse(node.func) == name:
            yield node


def _of_prediction(call: ast.Call) -> Iterator[str]:
    """Its question, its hints, and what it tells who makes a mistake."""
    yield from _strings(call.args[0])
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    hint, mistakes = given.get("hint"), given.get("mistakes")
    if hint is not None:
        yield from _strings(hint)
    if isinstance(mistakes, ast.Dict):
        for key in mistakes.keys:
            if key is not None:
                yield from _strings(key)


def _strings(node: ast.expr) -> Iterator[str]:
    """A string that is written down, or those of a tuple or list."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, (ast.Tuple, ast.List)):
        for inner in node.elts:
            yield from _strings(inner)
