"""Runs the code of an answer where it can do nothing but answer.

Python cannot lock up code that shares a process with what it must not touch, so an answer is
rewritten before it runs, and speaks a smaller language:

- Every attribute that is read or written goes through the guards (`guards.py`). Reading gives no
  module, no class of classes, and no attribute that leads to frames, code objects, raw memory or
  files; Python's special names and private ones are closed but for operators, constructors and what
  an answer's own classes define. That closes the known ways out of a namespace
  (`().__class__.__base__`, `generator.gi_frame.f_back`, ...).
- An answer may write to its own objects, tensors, modules and optimizers only. So nothing of torch,
  vramlab or Python can be patched.
- The only names are the builtins and modules of the `Vocabulary`.

Limits of time and memory are the operating system's work (`job_pool.py`), not this module's.
"""

from __future__ import annotations
import __future__

import ast
import sys
import types
from typing import Any, cast

from vramlab_classroom.judge import guards
from vramlab_classroom.judge.guards import DEFINABLE, OWN_MODULE, NotAllowed, is_special, words
from vramlab_classroom.judge.vocabulary import BUILTINS, Vocabulary

_HARMLESS_NAMES = words("__name__ __doc__")
"""Special names that may be read. `__name__` is not "__main__": what a file would do on its own,
an answer does not."""

# Names that code cannot spell, so that an answer cannot replace the guards.
_READ = "read guard"
_WRITABLE = "write guard"
_IMPORT = "import guard"
_FROM = "from guard"
_HELD = "held"

_IDENTIFIERS = {"arg", "asname", "attr", "id", "name", "names", "kwd_attrs", "rest"}
_NOT_SPOKEN = (ast.AsyncFor, ast.AsyncFunctionDef, ast.AsyncWith, ast.Await, ast.TryStar)


def load(source: str, vocabulary: Vocabulary) -> dict[str, Any]:
    """Run an answer's source in a namespace of its own, and return that namespace.

    Raises:
        NotAllowed: it uses something that answers may not use.
        SyntaxError: it is not Python.
        Exception: whatever its top level raises.
    """
    code = compile(
        _Rewriter().rewrite(ast.parse(source)),
        OWN_MODULE,
        "exec",
        flags=__future__.annotations.compiler_flag,
        dont_inherit=True,
    )
    module = types.ModuleType(OWN_MODULE)
    sys.modules[OWN_MODULE] = module  # where dataclasses look for the names in annotations
    namespace = vars(module)
    namespace["__builtins__"] = {
        **BUILTINS,
        "__build_class__": __build_class__,
        "__import__": __import__,  # for code in C; no statement of an answer reaches it
        _READ: guards.read,
        _WRITABLE: guards.writable,
        _IMPORT: vocabulary.import_,
        _FROM: vocabulary.import_from,
        _HELD: lambda value: types.SimpleNamespace(value=value),
    }
    exec(code, namespace)
    return namespace


class _Rewriter(ast.NodeTransformer):
    """Refuses what an answer may not say, and puts the guards around attributes and imports."""

    def __init__(self) -> None:
        self._classes: list[str] = []
        """Names of the classes around, the innermost last."""

        self._classes_of_patterns: list[ast.stmt] = []
        """What binds the classes in patterns of the `match` statement around."""

    def rewrite(self, tree: ast.Module) -> ast.Module:
        tree = cast(ast.Module, self.visit(tree))
        return ast.fix_missing_locations(tree)

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, _NOT_SPOKEN):
            raise NotAllowed("async code and except* are not there for answers")
        for field in node._fields:
            if field in _IDENTIFIERS:
                _refuse_closed_names(node, getattr(node, field, None))
        return super().visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._classes.append(node.name)
        try:
            return self.generic_visit(node)
        finally:
            self._classes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node  # annotations stay as they are: nothing evaluates them

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.target = self.visit(node.target)
        node.value = node.value and self.visit(node.value)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        name = self._mangled(node.attr)
        if isinstance(node.ctx, ast.Load):
            return _call(_READ, node, node.value, name)
        node.value = _call(_WRITABLE, node, node.value, name)
        return node

    def _mangled(self, name: str) -> str:
        """Return a name as Python does within a class: `__x` in `A` is `_A__x`."""
        if name.startswith("__") and not name.endswith("__") and self._classes:
            return f"_{self._classes[-1].lstrip('_')}{name}"
        return name

    def visit_Match(self, node: ast.Match) -> list[ast.stmt]:
        around, self._classes_of_patterns = self._classes_of_patterns, []
        self.generic_visit(node)
        bound, self._classes_of_patterns = self._classes_of_patterns, around
        return [*bound, node]

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.AST:
        node.value = self._held(node.value)
        return node

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        node.keys = [self._held(key) for key in node.keys]
        node.patterns = [self.visit(each) for each in node.patterns]
        return node

    def _held(self, value: ast.expr) -> ast.expr:
        """Read `Kind.NAME` as elsewhere: a pattern takes attributes, of any expression."""
        if not isinstance(value, ast.Attribute):
            return value
        held = _call(_HELD, value, self.visit(value))
        return ast.copy_location(ast.Attribute(held, "value", ast.Load()), value)

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.AST:
        """Read `torch.Tensor` as elsewhere, before the statement: a pattern takes names only."""
        if node.patterns or node.kwd_patterns:  # it would read attributes by name, past the guard
            raise NotAllowed("match with the attributes of a class is not there; use isinstance")
        name = f"class {len(self._classes_of_patterns)}"
        self._classes_of_patterns.append(_binding(node, name, self.visit(node.cls)))
        return ast.copy_location(ast.MatchClass(ast.Name(name, ast.Load()), [], [], []), node)

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        self.generic_visit(node)
        bound = []
        for alias in node.names:
            top = alias.name.partition(".")[0]
            given = _call(_IMPORT, node, alias.name, alias.name if alias.asname else top)
            bound.append(_binding(node, alias.asname or top, given))
        return bound

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        self.generic_visit(node)
        if node.module == "__future__":
            return []  # every answer is compiled with postponed annotations
        if node.level or node.module is None:
            raise NotAllowed("an answer stands alone: it has no package to import from")
        if any(alias.name == "*" for alias in node.names):
            raise NotAllowed(f"from {node.module} import *: name what you import")
        return [
            _binding(
                node,
                alias.asname or alias.name,
                _call(_FROM, node, node.module, alias.name),
            )
            for alias in node.names
        ]


def _refuse_closed_names(node: ast.AST, names: object) -> None:
    if isinstance(node, ast.Attribute):
        return  # decided when it is read or written
    for name in names if isinstance(names, list) else [names]:
        if not isinstance(name, str):
            continue
        if isinstance(node, ast.FunctionDef | ast.Name) and name in DEFINABLE:
            continue
        is_read = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        if is_read and name in _HARMLESS_NAMES:
            continue
        if is_special(name) or (isinstance(node, ast.alias) and name.startswith("_")):
            raise NotAllowed(f"the name {name} is not there for answers")


def _call(function: str, node: ast.AST, *arguments: ast.expr | str) -> ast.expr:
    given = [ast.Constant(each) if isinstance(each, str) else each for each in arguments]
    call = ast.Call(ast.Name(function, ast.Load()), given, [])
    return ast.copy_location(call, node)


def _binding(node: ast.stmt | ast.pattern, name: str, value: ast.expr) -> ast.stmt:
    return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node)
