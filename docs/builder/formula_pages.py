"""The page of all formulas, and a cheat sheet for each part of the course: made, not typed.

A formula is a small function in `vramlab_course/formulas`, or in `formulas` in a lesson's room:
what it gives is the first sentence of its docstring, the formula itself the expression that it
returns, its source what the docstrings say. The rules on a cheat sheet are those with which the
part's lessons end.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat

from vramlab_course.course_map import Part
from vramlab_course.experiments.formula_checks import FormulaCheck

ROOT = Path(__file__).resolve().parents[2]
COURSE = ROOT / "packages" / "vramlab-course" / "vramlab_course"

MODULES = (
    "vramlab.cuda_rules.sizes",
    "vramlab.cuda_rules.collectives",
    "vramlab.programs.optimizer_states",
    *(
        ".".join(path.relative_to(COURSE.parent).with_suffix("").parts)
        for pattern in ("formulas/[!_]*.py", "lessons/*/*formulas.py")
        for path in sorted(COURSE.glob(pattern))
    ),
)

_LONGEST = 150
"""Characters of an expression that a table still shows; what is longer is read in the file."""


@dataclass(frozen=True)
class Formula:
    """One function of a module of formulas.

    Attributes:
        name: such as `zero.paper_moved`, or `Class.method`.
        gives: what it answers.
        expression: what it returns; '' where that takes several lines.
        source: where it comes from, as its docstring or else the module's says.
    """

    name: str
    gives: str
    expression: str
    source: str


def formulas_of(module_name: str) -> list[Formula]:
    """Read a module's formulas: its public functions, and the methods of its public classes."""
    module = importlib.import_module(module_name)
    text = inspect.getsource(module)
    short = _short_name(module_name)
    found = []
    for prefix, function in _functions(ast.parse(text)):
        docstring = ast.get_docstring(function) or ""
        found.append(
            Formula(
                f"{short}.{prefix}{function.name}",
                _first_sentence(docstring),
                _expression(function),
                source_in(docstring),
            )
        )
    return found


def _short_name(module_name: str) -> str:
    """Return `zero` for the formulas of lesson 20, `attention` for `attention_formulas`."""
    package, _, name = module_name.rpartition(".")
    if name == "formulas":
        return package.rpartition(".")[2].partition("_")[2]
    return name.removesuffix("_formulas")


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield "", node
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                    yield f"{node.name}.", inner


def _expression(function: ast.FunctionDef) -> str:
    """What a function returns, and what names in that are; '' if it is no single expression."""
    steps = [node for node in function.body if not (_is_docstring(node) or _is_guard(node))]
    *named, last = steps
    if not isinstance(last, ast.Return) or last.value is None:
        return ""
    if not all(isinstance(node, ast.Assign) for node in named):
        return ""
    where = [ast.unparse(node) for node in named]
    text = ", where ".join([ast.unparse(last.value), *(["; ".join(where)] if where else [])])
    text = text.replace("self.", "")
    return text if len(text) <= _LONGEST else ""


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_guard(node: ast.stmt) -> bool:
    """Whether this only refuses bad input."""
    return isinstance(node, ast.If) and all(isinstance(inner, ast.Raise) for inner in node.body)


def _first_sentence(docstring: str) -> str:
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence = (
        re.split(r"(?<=[a-z)])\. (?=[A-Z])", paragraph)[0].removeprefix("Return ").rstrip(".")
    )
    return sentence[:1].upper() + sentence[1:]


def source_in(docstring: str) -> str:
    """Return what a docstring names as its source; '' if it names none."""
    found = re.search(r"Sources?(?: of [^:]+)?: (.+?)(?:\n\n|\Z)", docstring, flags=re.DOTALL)
    return " ".join(found[1].split()) if found else ""


# ---- The page of all formulas ----


def formulas_markdown() -> str:
    """Write a section for each module, with a table of its formulas."""
    return "\n\n".join(section for name in MODULES if (section := _section(name)))


def _section(module_name: str) -> str:
    formulas = formulas_of(module_name)
    if not formulas:
        return ""
    module = importlib.import_module(module_name)
    docstring = inspect.getdoc(module) or ""
    path = module_name.replace(".", "/") + ".py"
    file = Path(inspect.getfile(module)).relative_to(ROOT).as_posix()
    heading = _first_sentence(docstring)
    source = source_in(docstring)
    lines = [
        f"### {heading}",
        f"[`{path}`](../{file})" + (f". Source: {_plain(source)}" if source else ""),
        formulas_table(formulas),
    ]
    return "\n\n".join(lines)


def formulas_table(formulas: Sequence[Formula]) -> str:
    """Write formulas as a table in Markdown."""
    rows = ["| formula | returns | expression |", "| --- | --- | --- |"]
    rows += [_row(formula) for formula in formulas]
    return "\n".join(rows)


def _row(formula: Formula) -> str:
    gives = _plain(formula.gives)
    if formula.source:
        gives += f" ({_plain(formula.source).rstrip('.')})"
    expression = f"`{_cell(formula.expression)}`" if formula.expression else "several steps"
    return f"| `{formula.name}` | {gives} | {expression} |"


def _plain(text: str) -> str:
    """Text whose characters mean themselves in a table of Markdown, but for `code`."""
    return _cell(re.sub(r"(?<!\\)([*<>_\[\]])(?=[^`]*(?:`[^`]*`[^`]*)*$)", r"\\\1", text))


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def checks_markdown(checks: Sequence[FormulaCheck]) -> str:
    """Write what experiments make of predictions, as a table in Markdown."""
    rows = [
        "| lesson | experiment | numbers | equal | largest, predicted | largest, measured |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows += [
        f"| {check.lesson} | {_plain(check.question)} | {check.numbers} | {check.equal} "
        f"| {check.largest_predicted_bytes:,} B | {check.largest_measured_bytes:,} B |"
        for check in checks
    ]
    return "\n".join(rows)


# ---- Cheat sheets ----


def cheat_sheet(part: Part, checks: Sequence[FormulaCheck]) -> str:
    """Write what a part's lessons leave behind: their rules, and the part's formulas."""
    rules = "\n\n".join(_rules(ROOT / "lessons" / f"{stem}.ipynb") for stem in part.stems())
    by_name = {formula.name: formula for name in MODULES for formula in formulas_of(name)}
    formulas = [by_name[name] for name in part.formulas]
    numbers = sum(check.numbers for check in checks if check.lesson in part.lessons)
    equal = sum(check.equal for check in checks if check.lesson in part.lessons)
    held = (
        f"This part's experiments predict {numbers} numbers; {equal} of them match the "
        "measurement to the byte."
    )
    table = ["## Formulas", formulas_table(formulas)] if formulas else []
    return "\n\n".join(filter(None, [rules, *table, held]))


def _rules(lesson: Path) -> str:
    """Copy a lesson's rules. The heading is no link: Sphinx makes links of headings itself."""
    cells = nbformat.read(lesson, as_version=4).cells
    title = cells[0].source.partition("\n")[0].removeprefix("# ")
    (carries,) = (cell.source for cell in cells if cell.source.startswith("## What carries over"))
    rules = carries.partition("\n### ")[0].partition("\n\n")[2].strip()
    rules = rules.partition("\n\n**Your own script.**")[0]  # a thing to do, and no rule to look up
    inside = re.sub(r"\]\((\d\d_\w+\.ipynb)\)", r"](../lessons/\1)", rules)
    return f"## {title}\n\n{inside}\n\n[The lesson](../lessons/{lesson.name})"
