"""Finds an answer in the cells of a notebook.

An answer is source text, never a live object: the last cell that binds the task's name, preceded
by those statements of other cells that it needs (helper functions, constants, imports, and what
changes these). It is found without running anything, so it does not matter what else the notebook
did or in which order. Magics are for the notebook: those that only measure time leave the code that
they measure, and others are left out.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from IPython.core.inputtransformer2 import TransformerManager

MAX_CELL_CHARACTERS = 200_000
"""Longest cell, in characters: people write less, and generated text would take long to read."""

MAX_LINE_CHARACTERS = 80

TRANSPARENT_MAGICS = ("time", "capture", "prun", "timeit", "memit", "mprun")
"""`%%time` and its like: the rest of the cell is Python."""

SHELL = "get_ipython"

SETS = re.compile(r"^[\w.]*(?:setrecursionlimit|set_int_max_str_digits|[gs]etcontext|seed)\b")
"""Statements that set something in a module, which what comes later relies on."""

SHOWS = frozenset(["print", "display", "pprint", "check", "evidence", "help"])
MEASURES = frozenset(["vramlab", "vramlab_course", "vramlab_classroom"])
OF_NOTEBOOK = MEASURES | {"matplotlib", "seaborn", "plotly", "IPython", "ipywidgets", "rich"}
"""Packages that measure or show. An answer is not judged by what a cell does with them besides."""


class NoAnswer(Exception):
    """No cell binds the name of the task; the message says what to do."""


@dataclass(frozen=True)
class Statement:
    """One statement at the top level of a cell."""

    source: str
    binds: frozenset[str]
    """Global names that it gives a value."""

    needs: frozenset[str]
    """Global names that it, or a function in it, reads."""

    changes: frozenset[tuple[str, str]] = frozenset()
    """Global names whose values it may change, each with the name of the function that is
    called, or "": `table["a"] = 1`, `sizes.append(2)`, `fill(it)`, `@table.register`."""

    runs: frozenset[str] = frozenset()
    """The needs that it reads when it runs, without those of the functions that it defines."""

    sets: frozenset[str] = frozenset()
    """Of a definition: global names that are bound or changed when it is called or derived from."""

    bases: frozenset[str] = frozenset()
    """Of a class: what it derives from."""

    package: str = ""
    """What it imports from, if it is an import."""

    defines: bool = False
    """It defines a function or a class, or imports something."""

    shows: bool = False
    """It prints, checks or asserts, and does nothing else."""


class BrokenCell(Exception):
    """A cell is no Python; the message says which one, in which line, and why."""


def find_answer(cells: Sequence[str], name: str, instead: Mapping[str, str] | None = None) -> str:
    """Collect the source of the answer called `name` from the sources of code cells.

    Args:
        cells: code cells, in the order in which they were, or would be, executed. Of several
            bindings of a name the last one counts.
        name: of the answer.
        instead: by name, statements that take the place of those which bind it in the cells.

    Raises:
        NoAnswer: no cell binds the name.
        BrokenCell: none does, and a cell that mentions it is not Python; or such a cell mentions
            what the answer needs and no other cell gives.
    """
    parsed: list[Sequence[Statement]] = []
    broken: dict[str, BrokenCell] = {}
    for number, cell in enumerate(cells, 1):
        try:
            parsed.append(_statements(_without_magics(cell)))
        except (SyntaxError, ValueError) as error:
            parsed.append([])
            broken[cell] = BrokenCell(_where(error, cell, number))
    if instead:
        parsed = [[each for each in cell if not each.binds & instead.keys()] for cell in parsed]
        parsed.insert(0, [each for source in instead.values() for each in _statements(source)])
    homes = [index for index, cell in enumerate(parsed) if name in _bound(cell)]
    if not homes:
        for cell, problem in broken.items():
            if _mentions(cell, name):
                raise problem
        raise NoAnswer(f"no cell defines {name}; run the cell with your answer, then check again")
    others = [cell for index, cell in enumerate(parsed) if index != homes[-1]]
    home = _without_what_shows(parsed[homes[-1]], others, name)
    answer = [*_helpers(_needed(home) - _bound(home), others), *home]
    for missing in sorted(_needed(answer) - _bound(answer) - vars(builtins).keys()):
        for cell, problem in broken.items():
            if _mentions(cell, missing):
                raise problem
    return "\n\n".join(statement.source for statement in answer)


def _without_what_shows(
    home: Sequence[Statement], others: Iterable[Sequence[Statement]], name: str
) -> list[Statement]:
    """Leave out of the answer's cell what only serves the notebook: checks, experiments, pictures.

    These are statements that call `print`, `check` and the like, that assert something, or that use
    what is imported to measure or to draw. Definitions stay, with all that they name.
    """
    outside: set[str] = set()
    for statement in (each for cell in (*others, home) for each in cell):
        of_notebook = statement.package in OF_NOTEBOOK
        outside = outside | statement.binds if of_notebook else outside - statement.binds
    kept = []
    for statement in home:
        for_notebook = statement.shows or (not statement.defines and statement.needs & outside)
        if for_notebook and name not in statement.binds:
            outside |= statement.binds
        else:
            kept.append(statement)
    return [
        statement
        for statement in kept
        if statement.package not in OF_NOTEBOOK or statement.binds & _needed(kept)
    ]


def _mentions(cell: str, name: str) -> bool:
    return bool(re.search(rf"\b{re.escape(name)}\b", cell))


def _where(error: SyntaxError | ValueError, cell: str, number: int) -> str:
    """Describe what is wrong with a cell, and where: by its first line, since numbers change."""
    lines = cell.splitlines() or [""]
    first = next((line.strip() for line in lines if line.strip()), "")
    place = f"code cell {number}, which begins with: {_cut(first)}"
    if not isinstance(error, SyntaxError) or error.lineno is None:
        return f"{error}\n    in {place}"
    shown = lines[error.lineno - 1].strip() if 0 < error.lineno <= len(lines) else ""
    return (
        f"{type(error).__name__}: {error.msg}\n"
        f"    in line {error.lineno} of {place}\n"
        f"    in the line: {_cut(shown)}"
    )


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARACTERS else f"{line[:MAX_LINE_CHARACTERS]}..."


@cache
def _without_magics(cell: str) -> str:
    """Turn a cell into Python, line for line as far as it is, without `%` and `!`."""
    if len(cell) > MAX_CELL_CHARACTERS:
        raise ValueError(f"the cell has {len(cell)} characters; {MAX_CELL_CHARACTERS} can be read")
    if (magic := re.match(r"\s*%%(\w+)[^\n]*", cell)) is not None:
        if magic[1] not in TRANSPARENT_MAGICS:
            return ""
        return _without_magics("\n" * cell[: magic.end()].count("\n") + cell[magic.end() :])
    # `%time f(3)` runs a statement: IPython hides it in a text.
    cell = re.sub(r"(?m)^(\s*)%time[ \t]+(?=\S)", r"\1", cell)
    if not re.search(r"(?m)^\s*[%!]|[%!?]\w|\?\s*$|^\s*[,;/]", cell):
        return cell
    return TransformerManager().transform_cell(cell)


@cache
def _statements(source: str) -> Sequence[Statement]:
    """Read the statements of a cell; once, though many answers are looked for in it."""
    statements: list[Statement] = []
    for node in ast.parse(source).body:
        if _is_for_the_shell(node):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            # One statement per name: an answer may need one of them and not be allowed another.
            statements += [_statement(ast.unparse(each), each) for each in _single_imports(node)]
        else:
            segment = ast.get_source_segment(source, node, padded=True)
            statements.append(_statement(segment or ast.unparse(node), node))
    return statements


def _is_for_the_shell(node: ast.stmt) -> bool:
    """Return whether a statement is a magic, or takes what one gives."""
    value = getattr(node, "value", None)
    return isinstance(value, ast.Call) and ast.unparse(value).startswith(f"{SHELL}()")


def _single_imports(node: ast.Import | ast.ImportFrom) -> Iterable[ast.stmt]:
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield ast.Import([alias])
        else:
            yield ast.ImportFrom(node.module, [alias], node.level)


def _statement(source: str, node: ast.stmt) -> Statement:
    # Decorators stand before the segment that ast reports for a function or a class.
    for decorator in reversed(getattr(node, "decorator_list", [])):
        source = f"@{ast.unparse(decorator)}\n{source}"
    table = symtable.symtable(source, "cell", "exec")
    binds = {symbol.get_name() for symbol in table.get_symbols() if _is_bound(symbol)}
    needs = frozenset(_global_reads(table))
    is_definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    run = _run_by_definition(node) if is_definition else [node]
    changes = [] if _only_binds(node) else [each for part in run for each in _touched(part)]
    bases = node.bases if isinstance(node, ast.ClassDef) else []
    return Statement(
        source,
        frozenset(binds),
        needs,
        frozenset((name, by) for name, by in changes if name in needs),
        needs & frozenset(_read_at_once(node)),
        frozenset([*_bound_as_global(table), *_changed_by(node, needs)] if is_definition else []),
        frozenset(name for base in bases for name in _names(base)),
        package=_package(node),
        defines=is_definition or isinstance(node, ast.Import | ast.ImportFrom),
        shows=_only_shows(node),
    )


def _package(node: ast.stmt) -> str:
    match node:
        case ast.Import(names=[alias]):
            return alias.name.partition(".")[0]
        case ast.ImportFrom(module=str(module)):
            return module.partition(".")[0]
    return ""


def _only_binds(node: ast.stmt) -> bool:
    """Return whether a statement gives names values, and does nothing to what it reads for it."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    names = (ast.Name, ast.Tuple, ast.List)
    return isinstance(node, ast.Assign | ast.AnnAssign) and all(
        isinstance(target, names) for target in targets
    )


def _run_by_definition(node: ast.stmt) -> list[ast.expr]:
    """Return what a definition calls itself: decorators, and what makes a class of its bases."""
    calls = [
        each if isinstance(each, ast.Call) else ast.Call(each, [], [])
        for each in getattr(node, "decorator_list", [])
    ]
    return [*calls, *getattr(node, "bases", [])]


def _changed_by(node: ast.stmt, names: frozenset[str]) -> Iterator[str]:
    """Yield the global names that the functions of a definition write into, or call methods of.

    A class that does something for each that derives from it is changed by those.
    """
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
            yield from names.intersection(_root(each))
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
            is_method = isinstance(each.value.func, ast.Attribute)
            yield from names.intersection(_root(each.value)) if is_method else ()
        if isinstance(each, ast.FunctionDef) and each.name == "__init_subclass__":
            yield from [node.name] if isinstance(node, ast.ClassDef) else []


def _read_at_once(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement reads outside of the bodies of functions."""
    bodies = node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
    for each in ast.iter_child_nodes(node):
        if each not in bodies:
            yield from [each.id] if isinstance(each, ast.Name) else _read_at_once(each)


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _touched(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that a statement writes into, whose methods it calls, or that it gives on.

    With each, the name that it calls for it, or "".
    """
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
            yield from ((name, "") for name in _root(each))
        if isinstance(each, ast.Call) and not _shows(each):
            called = next(_root(each.func), "")
            if isinstance(each.func, ast.Attribute):
                yield called, called
            for argument in [*each.args, *(keyword.value for keyword in each.keywords)]:
                yield from ((name, called) for name in _root(argument))


def _root(node: ast.AST) -> Iterator[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        yield node.id


def _only_shows(node: ast.stmt) -> bool:
    """Return whether a statement prints, checks or asserts, in a loop perhaps, and nothing else."""
    match node:
        case ast.Assert() | ast.Pass():
            return True
        case ast.Expr(value=ast.Call() as call):
            return _shows(call)
        case ast.For() | ast.While() | ast.If() | ast.With():
            return all(map(_only_shows, [*node.body, *getattr(node, "orelse", [])]))
    return False


def _shows(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in SHOWS


def _bound_as_global(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names that functions of a statement declare global and bind: calls will do it."""
    for child in table.get_children():
        for symbol in child.get_symbols():
            if symbol.is_declared_global() and _is_bound(symbol):
                yield symbol.get_name()
        yield from _bound_as_global(child)


def _is_bound(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported()


def _global_reads(table: symtable.SymbolTable) -> Iterable[str]:
    top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (top or symbol.is_global()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _global_reads(child)


def _bound(statements: Iterable[Statement]) -> frozenset[str]:
    return frozenset(name for statement in statements for name in statement.binds)


def _needed(statements: Iterable[Statement]) -> frozenset[str]:
    return frozenset(name for statement in statements for name in statement.needs)


def _helpers(names: Iterable[str], cells: Sequence[Sequence[Statement]]) -> list[Statement]:
    """Choose the statements that give `names` their values, each after those that it needs."""
    statements = [statement for cell in cells for statement in cell]
    givers = _givers(cells)
    chosen: dict[int, Statement] = {}
    entered: set[int] = set()

    def choose(names: Iterable[str], until: int) -> None:
        """Choose what gives names their values, but changes only until a statement."""
        asked = {
            index
            for name in names
            for index in givers[name]
            if index < until or name in statements[index].binds
        }
        for index in sorted(asked - entered):
            if index not in entered:
                entered.add(index)
                choose(statements[index].needs, index)
                chosen[index] = statements[index]
                choose(statements[index].needs, len(statements))

    choose(names, len(statements))
    return list(chosen.values())


def _givers(cells: Sequence[Sequence[Statement]]) -> dict[str, list[int]]:
    """Give, for each name, the statements that bind or change it: from its last binding cell on.

    Of bindings that build on each other (`total = 0`, `total += 1`) all in that cell count.
    """
    givers: dict[str, list[int]] = defaultdict(list)
    imported: set[str] = set()
    setters: dict[str, frozenset[str]] = {}
    notebooks: set[str] = set()  # what measures or draws, and what is made with it
    index = 0
    for cell in cells:
        begun: set[str] = set()
        for statement in cell:
            for name in statement.binds:
                if name not in begun and name not in statement.needs:
                    givers[name] = []
                begun.add(name)
                givers[name].append(index)
            for_notebook = statement.package in OF_NOTEBOOK or statement.needs & notebooks
            notebooks = notebooks | statement.binds if for_notebook else notebooks - statement.binds
            for name in {each for call in statement.runs for each in setters.get(call, ())}:
                if name not in imported:
                    givers[name].append(index)
            for name in statement.binds if statement.defines else ():
                inherited = (setters.get(base, frozenset()) for base in statement.bases)
                setters[name] = statement.sets.union(*inherited)
            if statement.package:
                imported |= statement.binds
            else:
                imported -= statement.binds
            for name, called in statement.changes:
                # What a module's functions are called for is no change of the module.
                is_change = name not in imported or SETS.search(statement.source)
                if name in givers and is_change and called not in notebooks | statement.binds:
                    givers[name].append(index)
            index += 1
    return givers
