"""What is to be translated: Markdown, and what predictions, titles, tables and widgets say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Notebook = Mapping[str, Any]
"""As JSON has it."""


MISTAKES = "mistakes"
"""The place of what an exercise tells who makes a mistake."""

_NO_NAMES = ("print", "predict")
"""Calls whose words are a program's output, or a key."""

_WORDS = re.compile("[A-Za-z]{3,}").findall
"""In a title; with fewer than two, it is values."""

_WORD = re.compile(r"(?<![\w.(])[a-z]{3,}(?![\w.(])")
"""In a table's heading: without one, it is a unit or code."""


@dataclass(frozen=True)
class Text:
    """Something that a learner reads.

    Attributes:
        place: the id of its cell; a prediction's key; `MISTAKES`; or '' of what widgets say
            everywhere.
        english: it.
    """

    place: str
    english: str


def texts_of_notebook(notebook: Notebook) -> list[Text]:
    """Return a notebook's texts in their order, each once."""
    return list(dict.fromkeys(_texts_of_notebook(notebook)))


def _texts_of_notebook(notebook: Notebook) -> Iterator[Text]:
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield Text(cell["id"], source)
        elif not source.startswith("%") and "\n    %" not in source:  # no Python
            yield from (Text(cell["id"], words) for words in _of_code(ast.parse(source)))


def _of_code(cell: ast.Module) -> Iterator[str]:
    """Yield what a cell shows: titles of pictures, and its tables."""
    named = dict(_constants(cell))
    yield from _names(cell)
    for call in _calls(cell):
        name = ast.unparse(call.func)
        if name == "Table":
            caption, header = call.args[:2]
            yield from _strings(caption)
            header = named.get(ast.unparse(header), header)
            yield from filter(_WORD.search, _strings(header))
        else:
            titles = (each.value for each in call.keywords if each.arg == "title")
            for title in titles:
                yield from _strings(title)


def _names(cell: ast.Module) -> Iterator[str]:
    """Yield what parts of pictures and rows of tables are called: words that are not printed."""
    apart: set[ast.AST] = set()
    for node in ast.walk(cell):
        told: list[ast.AST] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _NO_NAMES:
            told = [node]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Table":
            told = [*node.args[:2]]
        elif (
            (isinstance(node, ast.keyword) and node.arg == "title")
            or isinstance(node, ast.Raise)
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))  # a docstring
        ):
            told = [node]
        elif isinstance(node, ast.JoinedStr):
            told = [*node.values]
        apart |= {inner for each in told for inner in ast.walk(each)}
    for node in ast.walk(cell):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and node not in apart:
            yield from (words for words in _strings(node) if _is_name(words))


def _is_name(words: str) -> bool:
    return " " in words and "\n" not in words and len(_WORDS(words)) > 1


def texts_of_widgets(paths: Iterable[Path]) -> list[Text]:
    """Return what modules say, each once: through `say`, and beside controls."""
    found = []
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = dict(_constants(tree))
        for call in _calls(tree):
            if ast.unparse(call.func) == "say":
                words = named.get(ast.unparse(call.args[0]), call.args[0])
                found += [Text("", each) for each in _strings(words)]
            elif ast.unparse(call.func) == "explorer":
                found += [Text("", each) for each in _strings(call.args[0])]
        found += [Text("", each) for each in _of_controls(tree) if _is_in_words(each)]
    return list(dict.fromkeys(found))


def _of_controls(tree: ast.AST) -> Iterator[str]:
    """Yield what stands beside the controls that annotate parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated":
            for control in node.slice.elts[1:] if isinstance(node.slice, ast.Tuple) else ():
                if isinstance(control, ast.Call) and control.args:
                    yield from _strings(control.args[0])


def _is_in_words(label: str) -> bool:
    """Whether it is more than a name in code, such as dtype or PYTORCH_CUDA_ALLOC_CONF."""
    return " " in label or label[:2].istitle()


def texts_of_headings(paths: Iterable[Path]) -> list[Text]:
    """Return the headings of the tables that modules make: strings in what they call `header`."""
    found = []
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign):
                is_header = ast.unparse(node.targets[0]) == "header"
            elif isinstance(node, ast.keyword):
                is_header = node.arg == "header"
            else:
                continue
            if is_header:
                found += [Text("", words) for words in _strings(node.value)]
    return list(dict.fromkeys(found))


def texts_of_findings(paths: Iterable[Path]) -> list[Text]:
    """Return the titles of pictures: what functions called `_finding` return."""
    found: list[Text] = []
    for path in paths:
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and function.name == "_finding":
                returned = (node for node in ast.walk(function) if isinstance(node, ast.Return))
                for node in sorted(returned, key=lambda node: node.lineno):
                    titles = _strings(node.value)
                    found += [Text("", words) for words in titles if len(_WORDS(words)) > 1]
    return list(dict.fromkeys(found))


def texts_in_code(paths: Iterable[Path], wanted: Iterable[str]) -> list[Text]:
    """Return those of some texts that modules still have, as strings or as lines of strings."""
    there: set[str] = set()
    for path in paths:
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.Constant, ast.JoinedStr)):
                for words in _strings(node):
                    there |= {words, words.strip(), *words.split("\n")}
    return [Text("", words) for words in wanted if words in there]


def texts_of_mistakes(path: Path) -> list[Text]:
    """Return what the tasks of a module tell who makes a mistake, each once."""
    found: list[str] = []
    for call in _calls(ast.parse(path.read_text(encoding="utf-8"))):
        name = ast.unparse(call.func)
        if name == "Mistake":
            found += _strings(call.args[0])
        elif name == "of":
            pairs = (each for each in call.args[1:] if isinstance(each, ast.Tuple))
            found += [words for pair in pairs for words in _strings(pair.elts[0])]
    return [Text(MISTAKES, words) for words in dict.fromkeys(found)]


def texts_of_predictions(path: Path, number: str) -> list[Text]:
    """Return the questions, hints and mistakes that the predictions of a lesson show.

    Args:
        path: its module, with `PREDICTIONS`: a dictionary of calls of `Question`.
        number: the lesson's, such as '05'.
    """
    predictions = dict(_constants(ast.parse(path.read_text(encoding="utf-8"))))["PREDICTIONS"]
    found = []
    for name, call in _items(predictions):
        given = {keyword.arg: keyword.value for keyword in getattr(call, "keywords", ())}
        parts = [*getattr(call, "args", ())[:1], given.get("hint")]
        parts += [words for words, _ in _items(given.get("mistakes"))]
        (key,) = _strings(name)
        found += [Text(f"{number}.{key}", words) for part in parts for words in _strings(part)]
    return found


def _items(node: ast.expr | None) -> list[tuple[ast.expr | None, ast.expr]]:
    return list(zip(node.keys, node.values, strict=True)) if isinstance(node, ast.Dict) else []


def _constants(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in module.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield ast.unparse(node.targets[0]), node.value


def _calls(tree: ast.AST) -> list[ast.Call]:
    """Return calls, as they stand one after the other."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return sorted(nodes, key=lambda node: (node.lineno, node.col_offset))


def _strings(node: ast.expr | None) -> Iterator[str]:
    """Yield a literal string, with {} for its values, or the strings of a tuple or list."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    elif isinstance(node, (ast.Tuple, ast.List)):
        for inner in node.elts:
            yield from _strings(inner)
