"""Finds an answer in the cells of a notebook.

An answer is source text, never a live object: the last cell that binds the task's name, preceded
by those statements of other cells that it needs (helper functions, constants, imports). It is found
without running anything, so it does not matter what else the notebook did or in which order.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from IPython.core.inputtransformer2 import TransformerManager


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


def find_answer(cells: Sequence[str], name: str) -> str:
    """Collect the source of the answer called `name` from the sources of code cells.

    Args:
        cells: code cells, in the order in which they were, or would be, executed. Of several
            bindings of a name the last one counts.

    Raises:
        NoAnswer: no cell binds the name.
        SyntaxError: none does, and a cell that mentions it is not Python.
    """
    parsed: list[list[Statement]] = []
    broken: SyntaxError | None = None
    for cell in cells:
        try:
            parsed.append(_statements(_without_magics(cell)))
        except SyntaxError as error:
            parsed.append([])
            broken = error if name in cell else broken
    homes = [cell for cell in parsed if name in _bound(cell)]
    if not homes:
        if broken:
            raise broken
        raise NoAnswer(f"no cell defines {name}; run the cell with your answer, then check again")
    home = homes[-1]
    others = [statement for cell in parsed if cell is not home for statement in cell]
    helpers = _helpers(_needed(home) - _bound(home), others)
    return "\n\n".join(statement.source for statement in [*helpers, *home])


def _without_magics(cell: str) -> str:
    """Turn IPython's `%` and `!` lines into the calls that they stand for: parsable Python."""
    return TransformerManager().transform_cell(cell)


def _statements(source: str) -> list[Statement]:
    statements = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            # One statement per name: an answer may need one of them and not be allowed another.
            statements += [_statement(ast.unparse(each), each) for each in _single_imports(node)]
        else:
            segment = ast.get_source_segment(source, node, padded=True)
            statements.append(_statement(segment or ast.unparse(node), node))
    return statements


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
    return Statement(source, frozenset(binds), frozenset(_global_reads(table)))


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


def _helpers(names: Iterable[str], statements: Sequence[Statement]) -> list[Statement]:
    """Choose the statements that give `names` their values, each after those that it needs."""
    last_binding = {
        name: index for index, statement in enumerate(statements) for name in statement.binds
    }
    chosen: dict[int, Statement] = {}
    entered: set[int] = set()

    def choose(needs: Iterable[str]) -> None:
        for index in sorted({last_binding[name] for name in needs if name in last_binding}):
            if index not in entered:
                entered.add(index)
                choose(statements[index].needs)
                chosen[index] = statements[index]

    choose(names)
    return list(chosen.values())
