"""What a program does with values that it has read: shown only, or do they decide about memory?

A virtual GPU has no values, so `while error > tolerance` runs another number of times than on a
real one, and the peak that was measured is no answer. `print(loss.item())` changes nothing. Here
the source of the program says which it is. The value is followed from the place at which it was
read: through assignments, calls and returns, to everything that it decides.

- A loop that it ends, a tensor's size, and a branch are decisions.
- A branch is none if both ways only print, save, raise, or set variables that decide nothing.
- A test for nan or infinity is none: in a healthy run there are none.

Known limitation: values that pass through a data structure of another file, or through code of a
package, are lost. Knows nothing of torch.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import CodeType

from vramlab.gpu.core.values.read_places import AS_IF_ALL, ReadPlace
from vramlab.source_files import CodeOwner, owner_of

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)

_SHOWS = re.compile(
    r"_*(print|pprint|log|save|write|dump|report|record|info|debug|warn|error|critical|exception"
    r"|append|add_|set_|format|join|exit|copyfile|makedirs|mkdir|exists|flush|close|time|perf_counter"
    r"|strftime|get_rank|is_main|display|update_bar|hexdigest|isoformat|startswith|endswith|lower|upper"
    r"|items|keys|values|get$|float$|int$|str$|bool$|round$|abs$|min$|max$|sum$|len$|isinstance$"
    r"|getattr$|hasattr$|state_dict$|item$|tolist$|unlink$|remove$|rename$|eval$|pow$|sqrt$|exp$)"
)
"""Functions that take no memory of a GPU, by how their names begin."""

_TAKES_ONLY = re.compile(
    r"_*(print|log|save|write|dump|report|info|debug|warn|error|on_|set_|len$)"
)
"""Functions whose results say nothing of their arguments."""

_OF_TYPES = ("isinstance", "issubclass", "type", "callable", "hasattr", "id")
"""Functions that ask what kind a value is of."""

_KEEPS = re.compile(r"(append|extend|add|insert|update|put|appendleft|setdefault)$")
"""Methods that keep their arguments."""

_HEALTHY = re.compile(r"nan|finite|inf\b|isinf", re.IGNORECASE)

_BY_SHAPE = {
    "shape",
    "size",
    "dim",
    "ndim",
    "dtype",
    "device",
    "numel",
    "nbytes",
    "is_cuda",
    "stride",
    "data_ptr",
    "untyped_storage",
}
"""What a tensor says of itself without its values."""

_SIZED = re.compile(
    r"(zeros|ones|empty|rand\w*|arange|linspace|new_\w+|expand|repeat\w*|view|reshape|narrow|resize_?"
    r"|tile|split|chunk|unfold|one_hot|eye|pad|islice)$"
)
"""Functions whose arguments are sizes."""

_SIZED_BY_FIRST = re.compile(r"(full|topk|normal)$")
_ENDS = (ast.Break, ast.Continue)


@dataclass(frozen=True)
class Decision:
    """A place where a value that does not exist decides about memory."""

    filename: str
    """Of the code."""
    line: int
    """Where it stands."""
    what: str
    """What is decided there: `how often a loop runs`."""

    @property
    def text(self) -> str:
        """The line; "" if a bracket is still open at its end, since `if (` says nothing."""
        line = linecache.getline(self.filename, self.line).strip()
        return line if line.count("(") == line.count(")") else ""


class _Source:
    """A file, with what is needed to follow values in it."""

    def __init__(self, filename: str, text: str) -> None:
        self.filename = filename
        self.tree = ast.parse(text)
        self._locals: dict[ast.AST, frozenset[str]] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.calls: dict[str, list[ast.Call]] = defaultdict(list)
        self.functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = defaultdict(list)
        self.names: dict[str, list[ast.Name]] = defaultdict(list)
        self.attributes: dict[str, list[ast.Attribute]] = defaultdict(list)
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            if isinstance(node, ast.Call):
                self.calls[_called(node)].append(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions[node.name].append(node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.names[node.id].append(node)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self.attributes[node.attr].append(node)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node stands in, innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def function_of(self, node: ast.AST) -> ast.AST:
        """Find the function, or the file, that a node is in."""
        return next((each for each in self.above(node) if isinstance(each, _FUNCTIONS)), self.tree)

    def is_of(self, use: ast.Name, scope: ast.AST) -> bool:
        """Check whether a name is a variable of `scope`, and not of a function inside of it."""
        for each in self.above(use):
            if each is scope:
                return True
            if isinstance(each, _FUNCTIONS) and use.id in self._locals_of(each):
                return False
        return False

    def _locals_of(self, function: ast.AST) -> frozenset[str]:
        if function not in self._locals:
            found, outer = set[str](), set[str]()
            for node in ast.walk(function):
                if self.function_of(node) is not function:
                    continue
                if isinstance(node, ast.arguments):
                    found.update(each.arg for each in ast.walk(node) if isinstance(each, ast.arg))
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    found.add(node.id)
                elif isinstance(node, ast.Global | ast.Nonlocal):
                    outer.update(node.names)
            self._locals[function] = frozenset(found - outer)
        return self._locals[function]

    def at(self, code: CodeType, instruction: int) -> ast.AST | None:
        """Find the expression that an instruction belongs to."""
        positions = list(code.co_positions())
        if instruction // 2 >= len(positions):
            return None
        begin, end, column, end_column = positions[instruction // 2]
        if begin is None or end is None or column is None or end_column is None:
            return None
        wanted = (begin, column), (end, end_column)
        best: ast.AST | None = None
        for node in ast.walk(self.tree):
            place = _place(node)
            if place and place[0] <= wanted[0] and wanted[1] <= place[1]:
                inner = _place(best) if best is not None else None
                if inner is None or (inner[0] <= place[0] and place[1] <= inner[1]):
                    best = node
        return best


def _place(node: ast.AST | None) -> tuple[tuple[int, int], tuple[int, int]] | None:
    if not isinstance(node, ast.expr | ast.stmt):
        return None
    end = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    return (node.lineno, node.col_offset), end


def _has_slice(node: ast.Subscript) -> bool:
    return any(isinstance(each, ast.Slice) for each in ast.walk(node.slice))


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


class ValueFlow:
    """Follows values through the source of a program.

    Args:
        files: lists the program's own; called when they are needed.
    """

    def __init__(self, files: Callable[[], Iterable[str]] = tuple) -> None:
        self._sources: dict[str, _Source | None] = {}
        self._texts: dict[str, str] = {}
        self._list_files = files

    def decisions(self, places: Iterable[ReadPlace]) -> dict[Decision, bool]:
        """Find what the values that were read have decided.

        Returns:
            Decisions, and whether each takes the most that it can (`AS_IF_ALL`).
        """
        found: dict[Decision, bool] = {}
        for place in places:
            for decision in self._follow(place).decided:
                at_most = AS_IF_ALL in place.what
                found[decision] = found.get(decision, True) and at_most
        return found

    def leads_to(
        self, places: Iterable[ReadPlace], code: CodeType, instruction: int
    ) -> ReadPlace | None:
        """Find the read whose value an expression depends on, or that decides whether it is run."""
        source = self._source(code.co_filename)
        failed = source.at(code, instruction) if source else None
        if source is None or failed is None:
            return None
        inside = set(ast.walk(failed))
        tests = {
            node
            for each in source.above(failed)
            if isinstance(each, ast.If | ast.While | ast.Assert)
            for node in ast.walk(each.test)
        }
        statement = next(
            (e for e in (failed, *source.above(failed)) if isinstance(e, ast.stmt)), None
        )
        if isinstance(statement, ast.Assert):
            inside |= set(ast.walk(statement.test))
        for place in reversed([*places]):
            if not (inside | tests).isdisjoint(self._follow(place).reached):
                return place
        return None

    def _follow(self, place: ReadPlace) -> _Follower:
        follower = _Follower(self, by_shape=place.what.startswith("shape of"))
        source = self._source(place.code.co_filename)
        node = source.at(place.code, place.instruction) if source else None
        if isinstance(node, ast.If | ast.While | ast.Assert):
            node = node.test  # a jump of `if not ...` has the place of the statement
        if source is None or node is None:
            return follower
        if place.what.startswith("shape of"):
            follower.decide(source, node, "a tensor's size")
        elif place.what.startswith("saving"):
            return follower
        elif isinstance(node, ast.Call):  # which reads a size that it is given
            follower.size(source, node)
        elif isinstance(node, ast.Subscript) and _has_slice(node):
            follower.decide(source, node, "a tensor's size")
        with suppress(RecursionError):  # what was found until then stands
            follower.value(source, node)
        return follower

    def _source(self, filename: str) -> _Source | None:
        if filename not in self._sources:
            try:
                text = self._text(filename)
                self._sources[filename] = _Source(filename, text) if text else None
            except (SyntaxError, ValueError, RecursionError):
                self._sources[filename] = None
        return self._sources[filename]

    def sources(self, beside: _Source, name: str) -> list[_Source]:
        """List the files in which a name of one file may stand: of a package, that file alone."""
        if owner_of(beside.filename) is not CodeOwner.PROGRAM:
            return [beside]
        others = (file for file in self._files if name in self._text(file))
        return list(dict.fromkeys([beside, *filter(None, map(self._source, others))]))

    @cached_property
    def _files(self) -> tuple[str, ...]:
        return tuple(self._list_files())

    def _text(self, filename: str) -> str:
        if filename not in self._texts:
            linecache.checkcache(filename)
            self._texts[filename] = "".join(linecache.getlines(filename))
        return self._texts[filename]


class _Follower:
    """Follows one value.

    Attributes:
        decided: what it decides.
        reached: every node that has it, or what was made of it.
    """

    def __init__(self, flow: ValueFlow, by_shape: bool) -> None:
        self.decided: dict[Decision, None] = {}
        self.reached: set[ast.AST] = set()
        self._flow = flow
        self._by_shape = by_shape

    def decide(self, source: _Source, node: ast.AST, what: str) -> None:
        """Note a decision."""
        line = getattr(node, "lineno", 0)
        self.decided[Decision(source.filename, line, what)] = None

    def size(self, source: _Source, call: ast.Call, node: ast.AST | None = None) -> None:
        """Note what is called with a size, or with `node` for one."""
        name = _called(call)
        if name == "range":
            self.decide(source, call, "how often a loop runs")
        elif _SIZED.match(name) or (
            _SIZED_BY_FIRST.match(name) and (node is None or call.args[:1] == [node])
        ):
            self.decide(source, call, "a tensor's size")

    def value(self, source: _Source, node: ast.AST) -> None:
        """Follow the value of an expression to where it is used."""
        if node in self.reached:
            return
        self.reached.add(node)
        parent = source.parents.get(node)
        match parent:
            case ast.While():
                self._loop(source, parent, parent)
            case ast.If():
                self._branch(source, parent, node)
            case ast.IfExp() if parent.test is node and not (
                self._takes_nothing(source, parent.body)
                and self._takes_nothing(source, parent.orelse)
            ):
                self.decide(source, parent, "which branch runs")
            case ast.Call():
                self._argument(source, parent, node)
            case ast.Attribute():
                if self._by_shape or parent.attr not in _BY_SHAPE:
                    self.value(source, parent)
            case ast.Compare() if all(isinstance(op, ast.Is | ast.IsNot) for op in parent.ops):
                return  # whatever the value is
            case ast.Slice():
                self.decide(source, parent.lower or parent, "a tensor's size")
            case ast.Assign():
                for target in parent.targets:
                    self._store(source, target)
            case ast.AugAssign() | ast.AnnAssign() | ast.NamedExpr():
                self._store(source, parent.target)
                if isinstance(parent, ast.NamedExpr):
                    self.value(source, parent)
            case ast.For() | ast.AsyncFor() | ast.comprehension() if parent.iter is node:
                self._store(source, parent.target)
            case ast.comprehension():  # in its conditions
                self.value(source, source.parents[parent])
            case ast.Return() | ast.Yield():
                self._returned(source, parent)
            case ast.match_case() | ast.Match():
                self.decide(source, node, "which branch runs")
            case ast.JoinedStr() | ast.FormattedValue() | ast.Assert() | ast.Raise() | ast.Expr():
                return
            case ast.expr() | ast.keyword() | ast.Starred():
                self.value(source, parent)

    def _store(self, source: _Source, target: ast.AST) -> None:
        """Follow what was assigned to where it is read."""
        if isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._store(source, each)
        elif isinstance(target, ast.Subscript | ast.Starred):
            self._store(source, target.value)
        elif isinstance(target, ast.Attribute):
            for use in source.attributes[target.attr]:
                self.value(source, use)
        elif isinstance(target, ast.Name):
            self._name(source, target.id, target)

    def _name(self, source: _Source, name: str, stored: ast.AST) -> None:
        scope = source.function_of(stored)
        around = {each for each in source.above(stored) if isinstance(each, _LOOPS)}
        for use in source.names[name]:
            is_later = use.lineno >= getattr(stored, "lineno", 0) or not around.isdisjoint(
                source.above(use)
            )
            if source.is_of(use, scope) and (is_later or source.function_of(use) is not scope):
                self.value(source, use)

    def _argument(self, source: _Source, call: ast.Call, node: ast.AST) -> None:
        """Follow an argument into the function that is called, and what it makes of it."""
        name = _called(call)
        if node is call.func:  # a method of the value, or what it is the result of
            self.value(source, call)
            return
        self.size(source, call, node)
        if _KEEPS.match(name) and isinstance(call.func, ast.Attribute):
            self._store(source, call.func.value)
        known = self._functions(source, name)
        for there, function in known:
            self._parameter(there, function, call, node)
        if not known and (
            name in _OF_TYPES or _TAKES_ONLY.match(name) or (name == "size" and not self._by_shape)
        ):
            return
        self.value(source, call)

    def _parameter(
        self,
        source: _Source,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        call: ast.Call,
        node: ast.AST,
    ) -> None:
        names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        if names[:1] in (["self"], ["cls"]) and isinstance(call.func, ast.Attribute):
            names = names[1:]
        for number, argument in enumerate(call.args):
            if argument is node and number < len(names):
                self._name(source, names[number], function.body[0])
        for keyword in call.keywords:
            if keyword.value is node and keyword.arg:
                self._name(source, keyword.arg, function.body[0])

    def _functions(
        self, source: _Source, name: str
    ) -> list[tuple[_Source, ast.FunctionDef | ast.AsyncFunctionDef]]:
        return [
            (there, function)
            for there in self._flow.sources(source, name)
            for function in there.functions.get(name, ())
        ]

    def _returned(self, source: _Source, statement: ast.AST) -> None:
        function = source.function_of(statement)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for there in self._flow.sources(source, function.name):
                for call in there.calls.get(function.name, ()):
                    self.value(there, call)

    def _loop(self, source: _Source, loop: ast.For | ast.AsyncFor | ast.While, at: ast.AST) -> None:
        """Note what ends a loop, unless it only shows things and sets variables."""
        # What a loop adds up may be tensors.
        adds = any(isinstance(node, ast.BinOp) for each in loop.body for node in ast.walk(each))
        if not adds and all(self._is_harmless(source, statement) for statement in loop.body):
            self._stored_in(source, loop.body)
        else:
            self.decide(source, at, "how often a loop runs")

    def _stored_in(self, source: _Source, statements: Sequence[ast.stmt]) -> None:
        """Follow the variables that statements set, which may or may not run."""
        for statement in statements:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                    self._store(source, node)

    def _branch(self, source: _Source, branch: ast.If, test: ast.AST) -> None:
        """Note a branch, unless it makes no difference which way the program goes."""
        if _HEALTHY.search(ast.unparse(test)):
            return
        bodies = [*branch.body, *branch.orelse]
        inside = [node for statement in bodies for node in ast.walk(statement)]
        loop = next(
            (each for each in source.above(branch) if isinstance(each, (*_LOOPS, *_FUNCTIONS))),
            None,
        )
        if isinstance(loop, _LOOPS) and any(
            isinstance(node, (*_ENDS, ast.Return)) for node in inside
        ):
            self._loop(source, loop, branch)
            return
        left_out = bodies
        if any(isinstance(node, ast.Return) for node in inside):
            left_out = [*bodies, *self._after(source, branch)]
        if not all(self._is_harmless(source, statement) for statement in left_out):
            self.decide(source, branch, "which branch runs")
            return
        for node in inside:
            if isinstance(node, ast.Return):
                self._returned(source, node)
        self._stored_in(source, bodies)

    def _after(self, source: _Source, statement: ast.AST) -> Iterator[ast.stmt]:
        """Yield what a function runs after one of its statements."""
        for parent in source.above(statement):
            for _, block in ast.iter_fields(parent):
                if isinstance(block, list) and statement in block:
                    yield from block[block.index(statement) + 1 :]
            if isinstance(parent, _FUNCTIONS):
                return
            statement = parent

    def _is_harmless(self, source: _Source, statement: ast.AST, depth: int = 3) -> bool:
        """Check that a statement takes no memory and frees none."""
        if isinstance(statement, ast.Raise | ast.Pass | ast.Assert):
            return True
        for node in ast.walk(statement):
            if isinstance(node, ast.Delete | ast.Await | ast.Yield):
                return False
            if isinstance(node, ast.Call) and not self._call_is_harmless(source, node, depth):
                return False
        return True

    def _call_is_harmless(self, source: _Source, call: ast.Call, depth: int) -> bool:
        name = _called(call)
        if _SHOWS.match(name) or (name == "step" and "sched" in ast.unparse(call.func)):
            return True
        known = self._functions(source, name)
        return (
            bool(known)
            and depth > 0
            and all(
                self._is_harmless(there, statement, depth - 1)
                for there, function in known
                for statement in function.body
            )
        )

    def _takes_nothing(self, source: _Source, expression: ast.AST) -> bool:
        return self._is_harmless(source, expression)
