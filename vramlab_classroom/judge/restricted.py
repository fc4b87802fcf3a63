"""Runs the code of an answer where it can do nothing but answer.

Python cannot lock up code that shares a process with what it must not touch, so an answer is
rewritten before it runs, and speaks a smaller language:

- No name or attribute begins with an underscore pair, no attribute with an underscore, and no
  attribute leads to frames or code objects. That closes the known ways out of a namespace
  (`().__class__.__base__`, `generator.gi_frame.f_back`, ...).
- Every attribute that is read goes through `_read`, which gives no module; every attribute that
  is written goes through `_writable`, which lets an answer write to its own objects, tensors,
  modules and optimizers only. So nothing of torch, vramlab or Python can be patched.
- The only names are the builtins and modules of its `Vocabulary`.

Limits of time and memory are the operating system's work (`bench.py`), not this module's.
"""

from __future__ import annotations
import __future__

import ast
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, cast

from vramlab_classroom.judge.vocabulary import BUILTINS, OWN_MODULE, NotAllowed, Vocabulary, words

METHODS = words(
    "__call__ __contains__ __enter__ __exit__ __getitem__ __init__ __iter__ __len__ __lt__ "
    "__next__ __post_init__ __repr__ __setitem__ __str__"
)
"""Special methods that a class in an answer may define, and call through super()."""

CLOSED_PREFIXES = ("_", "ag_", "co_", "cr_", "f_", "func_", "gi_", "tb_")
CLOSED_ATTRIBUTES = words(
    # They read attributes named in a text, give away the object that an error came from, leave
    # torch for raw memory or files, or run other code.
    "compile ctypes dump format format_map from_buffer from_file mro numpy obj save share_memory "
    "share_memory_ tofile"
)

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
        _READ: _read,
        _WRITABLE: _writable,
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


def _read(owner: Any, name: str) -> Any:
    value = getattr(owner, name)
    if isinstance(value, ModuleType):
        raise NotAllowed(f".{name} is a module, which is not there for answers")
    return value


def _writable(owner: Any) -> Any:
    own = type(owner).__module__ == OWN_MODULE
    if not own and not isinstance(owner, _torch_writable()):
        kind = owner.__name__ if isinstance(owner, type) else type(owner).__name__
        raise NotAllowed(f"an answer may not change the attributes of {kind}")
    return owner


def _torch_writable() -> tuple[type, ...]:
    # An answer that has torch objects has imported torch; a prediction never loads it.
    torch = sys.modules.get("torch")
    if torch is None:
        return ()
    context = torch.autograd.function.FunctionCtx
    return (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, context)


class _Rewriter(ast.NodeTransformer):
    """Refuses what an answer may not say, and puts the guards around attributes."""

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

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if node.attr in METHODS and _is_super_call(node.value):
            return self.generic_visit(node)
        if node.attr.startswith(CLOSED_PREFIXES) or node.attr in CLOSED_ATTRIBUTES:
            hint = "; use an f-string" if node.attr.startswith("format") else ""
            raise NotAllowed(f"the attribute .{node.attr} is not there for answers{hint}")
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            return _call(_READ, node, [node.value, ast.Constant(node.attr)])
        node.value = _call(_WRITABLE, node, [node.value])
        return node

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
    for name in names if isinstance(names, list) else [names]:
        if not isinstance(name, str) or (isinstance(node, ast.FunctionDef) and name in METHODS):
            continue
        if isinstance(node, ast.Attribute) and name in METHODS:
            continue  # decided in visit_Attribute
        if name.startswith("__") or (isinstance(node, ast.alias) and name.startswith("_")):
            raise NotAllowed(f"the name {name} is not there for answers")


def _is_super_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    )


def _call(function: str, node: ast.AST, arguments: list[ast.expr]) -> ast.expr:
    call = ast.Call(ast.Name(function, ast.Load()), arguments, [])
    return ast.copy_location(call, node)
