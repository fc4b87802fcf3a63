"""Runs the code of an answer where it can do nothing but answer.

Python cannot lock up code that shares a process with what it must not touch, so an answer is
rewritten before it runs, and speaks a smaller language:

- Every attribute that is read or written goes through the guards (`guards.py`). Reading gives no
  module, no class of classes, and no attribute that leads to frames, code objects, raw memory or
  files; Python's special names and private ones are closed but for harmless ones and for an
  answer's own objects. That closes the known ways out of a namespace
  (`().__class__.__base__`, `generator.gi_frame.f_back`, ...).
- An answer may write to its own objects, tensors, modules and optimizers only. So nothing of torch,
  vramlab or Python can be patched.
- The only names are the builtins and modules of its `Vocabulary`.

Limits of time and memory are the operating system's work (`job_pool.py`), not this module's.
"""

from __future__ import annotations
import __future__

import ast
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, cast

from vramlab_classroom.judge import guards
from vramlab_classroom.judge.guards import METHODS, OWN_MODULE, NotAllowed, is_special, words
from vramlab_classroom.judge.vocabulary import BUILTINS, Vocabulary

HARMLESS_NAMES = words("__name__ __doc__")
"""Special names that may be read. `__name__` is not "__main__": what a file would do on its own,
an answer does not."""

# Names that code cannot spell, so that an answer cannot replace the guards.
_READ = "read guard"
_WRITABLE = "write guard"

_IDENTIFIERS = {"arg", "asname", "attr", "id", "name", "names", "kwd_attrs", "rest"}
_NOT_SPOKEN = (ast.AsyncFor, ast.AsyncFunctionDef, ast.AsyncWith, ast.Await, ast.TryStar)


def load(source: str, vocabulary: Vocabulary) -> dict[str, Any]:
    """Run an answer's source in a namespace of its own, and return that namespace.

    Raises:
        NotAllowed: it uses something that is not there for answers.
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
    module = ModuleType(OWN_MODULE)
    sys.modules[OWN_MODULE] = module  # where dataclasses look for the names in annotations
    namespace = vars(module)
    namespace["__builtins__"] = _builtins(vocabulary)
    exec(code, namespace)
    return namespace


def _builtins(vocabulary: Vocabulary) -> dict[str, object]:
    return {
        **BUILTINS,
        "__build_class__": __build_class__,
        "__import__": _importer(vocabulary),
        _READ: guards.read,
        _WRITABLE: guards.writable,
    }


def _importer(vocabulary: Vocabulary) -> Callable[..., Any]:
    def import_(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: tuple[str, ...] | None = (),
        level: int = 0,
    ) -> Any:
        if level:
            raise NotAllowed("an answer stands alone: it has no package to import from")
        module = vocabulary.facade(name)
        return module if fromlist else vocabulary.facade(name.partition(".")[0])

    return import_


class _Rewriter(ast.NodeTransformer):
    """Refuses what an answer may not say, and puts the guards around attributes."""

    def __init__(self) -> None:
        self._classes: list[str] = []
        """Names of the classes around, the innermost last."""

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

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr in METHODS and _is_super_call(node):
            return node
        name = self._mangled(node.attr)
        if isinstance(node.ctx, ast.Load):
            return _call(_READ, node, [node.value, ast.Constant(name)])
        node.value = _call(_WRITABLE, node, [node.value, ast.Constant(name)])
        return node

    def _mangled(self, name: str) -> str:
        """Give a name as Python does within a class: `__x` in `A` is `_A__x`."""
        if name.startswith("__") and not is_special(name) and self._classes:
            return f"_{self._classes[-1].lstrip('_')}{name}"
        return name

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.AST:
        # A class pattern reads attributes by name, past the guard.
        raise NotAllowed("match with a class pattern is not there for answers; use isinstance")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        if node.module == "__future__":
            return None  # every answer is compiled with postponed annotations
        if any(alias.name == "*" for alias in node.names):
            raise NotAllowed(f"from {node.module} import *: name what you import")
        return node


def _refuse_closed_names(node: ast.AST, names: object) -> None:
    if isinstance(node, ast.Attribute):
        return  # decided when it is read or written
    for name in names if isinstance(names, list) else [names]:
        if not isinstance(name, str) or (isinstance(node, ast.FunctionDef) and name in METHODS):
            continue
        is_read = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        if is_read and name in HARMLESS_NAMES:
            continue
        if is_special(name) or (isinstance(node, ast.alias) and name.startswith("_")):
            raise NotAllowed(f"the name {name} is not there for answers")


def _is_super_call(node: ast.Attribute) -> bool:
    owner = node.value
    return (
        isinstance(owner, ast.Call)
        and isinstance(owner.func, ast.Name)
        and owner.func.id == "super"
    )


def _call(function: str, node: ast.AST, arguments: list[ast.expr]) -> ast.expr:
    call = ast.Call(ast.Name(function, ast.Load()), arguments, [])
    return ast.copy_location(call, node)
