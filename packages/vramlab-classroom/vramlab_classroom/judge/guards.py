"""How the code of an answer reads and writes attributes: every access of `restricted.py` is here.

Also what an answer gets instead of functions that read or write attributes by themselves, or do
more than an answer needs.
"""

from __future__ import annotations

import ast
import enum
import functools
import string
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType, ModuleType, UnionType
from typing import Any

from vramlab.errors import VramlabError

OWN_MODULE = "__answer__"
"""`__module__` of what an answer defines, by which its own classes are known."""


def words(text: str) -> frozenset[str]:
    """Turn words with spaces between them into a set."""
    return frozenset(text.split())


class NotAllowed(VramlabError):
    """An answer uses something that answers may not use; the message says what."""


class NoSuchName(NotAllowed, AttributeError):
    """A module has no such name for answers: `hasattr` says so, too."""


class NoSuchModule(NotAllowed, ImportError):
    """A module, or a name to import, is not there: answers may go on without it."""


CLOSED_PREFIXES = ("ag_", "co_", "cr_", "f_", "func_", "gi_", "tb_")
CLOSED_ATTRIBUTES = words(
    # They give away the object that an error came from, leave torch for raw memory or files, run
    # other code, or take memory away from tensors that others hold.
    "compile ctypes dump evaluate from_buffer from_file mro obj resize_ resize_as_ save set_ "
    "share_memory share_memory_ tofile"
)
HARMLESS = words("__cause__ __class__ __doc__ __members__ __module__ __name__ __qualname__")
"""Special attributes that may be read of anything."""

_BINARY = words("add and divmod floordiv lshift matmul mod mul or pow rshift sub truediv xor")
OPERATORS = frozenset(f"__{kind}{name}__" for kind in ("", "r", "i") for name in _BINARY) | words(
    "__abs__ __bool__ __bytes__ __call__ __ceil__ __complex__ __contains__ __copy__ __deepcopy__ "
    "__delitem__ __enter__ __eq__ __exit__ __float__ __floor__ __format__ __ge__ __getitem__ "
    "__gt__ __hash__ __index__ __int__ __invert__ __iter__ __le__ __len__ __length_hint__ __lt__ "
    "__missing__ __ne__ __neg__ __next__ __pos__ __repr__ __reversed__ __round__ __setitem__ "
    "__str__ __trunc__"
)
"""Special methods behind syntax and builtins: an answer may call those of any object by name."""

CONSTRUCTORS = words("__init__ __init_subclass__ __new__ __post_init__")
"""Special methods that set up an answer's own objects, by whichever class."""

SETTERS = words("__delattr__ __setattr__")

DEFINABLE = (
    OPERATORS
    | CONSTRUCTORS
    | SETTERS
    | words("__class_getitem__ __delete__ __get__ __match_args__ __set__ __set_name__ __slots__")
)
"""Special names that a class in an answer may define.

Not `__getattr__` and `__array_interface__`: NumPy and torch take addresses of memory from them. Not
`__reduce__` and `__setstate__`: copies set any attribute by them. Not `__del__`: it runs at an
unpredictable moment, also while the judge's own code does."""

OF_OPERATORS = words("name namespace overloadpacket overloads tags")
"""What may be read of `torch.ops.aten.mm` and its overloads; other things register kernels."""

_NONE = object()


class Facade:
    """Stands for a module in an answer: an answer never holds a module."""

    __slots__ = ("_look_up",)

    def __init__(self, look_up: Callable[[str], Any]) -> None:
        self._look_up = look_up


def read(owner: Any, name: str) -> Any:
    """Read an attribute.

    Raises:
        NotAllowed: it is closed, or leads to a module or to the class of classes.
    """
    if type(owner) is Facade:
        return owner._look_up(name)
    if name in SETTERS and (owner is object or _is_own(owner)):
        return _setter(owner, name)
    if name == "__dict__" and _is_own(owner) and not isinstance(owner, type | super):
        return types.MappingProxyType(owner.__dict__)  # to write, there is setattr
    _check_name(owner, name)
    if name in CONSTRUCTORS and isinstance(owner, type) and not _is_own(owner):
        return _constructor(owner, name)
    if name in ("format", "format_map") and _is_text(owner):
        return _format_of(owner, name)
    value = getattr(owner, name)
    if name in _STORAGES and callable(value):
        return lambda *args: StorageFacts(value(*args))
    if isinstance(value, ModuleType):
        raise NotAllowed(f".{name} is a module, which is not there for answers")
    return _harmless_class(value) if isinstance(value, type) else value


_STORAGES = words("storage typed_storage untyped_storage")


class StorageFacts:
    """Shows an answer the size and address of a tensor's storage, and never its bytes."""

    def __init__(self, storage: Any) -> None:
        self.device, self.is_cuda = storage.device, storage.is_cuda
        numbers = storage.nbytes(), storage.size(), storage.data_ptr()
        self.nbytes, self.size, self.data_ptr = (functools.partial(int, each) for each in numbers)

    def __len__(self) -> int:
        return self.size()


def _is_text(owner: Any) -> bool:
    kind = owner if isinstance(owner, type) else type(owner)
    return issubclass(kind, str | super)


def _harmless_class(value: type) -> type:
    """Refuse the classes that classes are made with, and ours, such as that of facades."""
    is_ours = value.__module__.startswith("vramlab")
    if issubclass(value, _arrays()):
        return Array
    if is_ours or issubclass(value, type) or value is types.SimpleNamespace:
        raise NotAllowed(f"the class {value.__name__} is not there for answers")
    return value


def writable(owner: Any, name: str) -> Any:
    """Return an object that an answer may set an attribute of.

    Raises:
        NotAllowed: it may not.
    """
    _check_name(owner, name)
    kind = owner if isinstance(owner, type) else type(owner)
    is_own = kind.__module__ == OWN_MODULE or isinstance(owner, types.SimpleNamespace)
    is_own |= isinstance(owner, FunctionType) and owner.__module__ == OWN_MODULE
    if is_special(name) or not (is_own or isinstance(owner, _torch_writable())):
        raise NotAllowed(f"an answer may not change the attributes of {kind.__name__}")
    return owner


def _check_name(owner: Any, name: str) -> None:
    if isinstance(owner, ModuleType):
        raise NotAllowed("a module is not there for answers")
    if is_special(name):
        is_open = name in HARMLESS or name in OPERATORS
        is_open |= name in CONSTRUCTORS and (isinstance(owner, type) or _is_own(owner))
    else:
        is_closed = name.startswith(("_", *CLOSED_PREFIXES)) or name in CLOSED_ATTRIBUTES
        is_closed |= name == "resize" and isinstance(owner, _arrays())  # moves others' memory
        is_open = not is_closed or (_is_own(owner) and _defines(owner, name))
    if type(owner).__module__ == "torch._ops":
        is_open = name in OF_OPERATORS or name in getattr(owner, "overloads", tuple)()
    if not is_open:
        raise NotAllowed(f"the attribute .{name} is not there for answers")


def is_special(name: str) -> bool:
    """Return whether a name is one of Python's own: `__name__`, but not `__`."""
    return name.startswith("__") and name.endswith("__") and name.strip("_") != ""


def _is_own(owner: Any) -> bool:
    return _class_of(owner).__module__ == OWN_MODULE


def _class_of(owner: Any) -> type:
    if isinstance(owner, super):
        owner = _of_super(owner, "__thisclass__")
    return owner if isinstance(owner, type) else type(owner)


def _of_super(owner: super, name: str) -> Any:
    return vars(super)[name].__get__(owner)


def _defines(owner: Any, name: str) -> bool:
    """Return whether an answer defines an attribute: not a base, nor the class of its class.

    Classes that derive from `Module` may also use its private attributes.
    """
    kinds = _class_of(owner).__mro__
    if isinstance(owner, super):
        kinds = (_of_super(owner, "__self_class__") or kinds[0]).__mro__
        kinds = kinds[kinds.index(_class_of(owner)) + 1 :]
    for kind in kinds:
        if name in vars(kind):
            is_of_module = kind.__module__ == "torch.nn.modules.module" and name.startswith("_")
            return is_of_module or kind.__module__ == OWN_MODULE
    return not (isinstance(owner, type) and hasattr(type(owner), name))


def _arrays() -> tuple[type, ...]:
    numpy = sys.modules.get("numpy")
    return () if numpy is None else (numpy.ndarray,)


def _torch_writable() -> tuple[type, ...]:
    # An answer that has torch objects has imported torch.
    torch = sys.modules.get("torch")
    if torch is None:
        return ()
    context = torch.autograd.function.FunctionCtx
    return (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, context)


def getattr_(owner: Any, name: str, default: Any = _NONE) -> Any:
    """Be `getattr`, by the rules of `read`."""
    try:
        return read(owner, _text(name))
    except AttributeError:
        if default is _NONE:
            raise
        return default


def hasattr_(owner: Any, name: str) -> bool:
    """Be `hasattr`, by the rules of `read`."""
    try:
        read(owner, _text(name))
    except AttributeError:
        return False
    return True


def setattr_(owner: Any, name: str, value: Any) -> None:
    """Be `setattr`, by the rules of `writable`."""
    setattr(writable(owner, _text(name)), name, value)


def delattr_(owner: Any, name: str) -> None:
    """Be `delattr`, by the rules of `writable`."""
    delattr(writable(owner, _text(name)), name)


def vars_(owner: Any) -> Any:
    """Be `vars` of an answer's own objects, to be read."""
    return read(owner, "__dict__")


def attrgetter(*names: str) -> Callable[[Any], Any]:
    """Be `operator.attrgetter`, by the rules of `read`."""
    paths = [_text(name).split(".") for name in names]

    def get(owner: Any) -> Any:
        values = tuple(functools.reduce(read, path, owner) for path in paths)
        return values[0] if len(values) == 1 else values

    return get


def methodcaller(name: str, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """Be `operator.methodcaller`, by the rules of `read`."""
    return lambda owner: read(owner, _text(name))(*args, **kwargs)


def _setter(owner: Any, name: str) -> Callable[..., None]:
    """Return `object.__setattr__` or `super().__setattr__`, by the rules of `writable`."""

    def change(*given: Any) -> None:
        target, attribute = given[:2] if isinstance(owner, type) else (owner, given[0])
        if isinstance(target, super):
            target = _of_super(target, "__self__")
        writable(target, _text(attribute))
        getattr(owner, name)(*given)

    return change


def _constructor(owner: type, name: str) -> Callable[..., Any]:
    """Return `Base.__init__` or `Base.__new__`, for objects and classes of the answer."""

    def construct(target: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_own(target):
            raise NotAllowed(f"{owner.__name__}.{name} is for objects of the answer's own classes")
        return getattr(owner, name)(target, *args, **kwargs)

    return construct


def _text(name: object) -> str:
    if not isinstance(name, str) or type(name) is not str:  # a str of their own may change its mind
        raise TypeError(f"attribute name must be string, not '{type(name).__name__}'")
    return name


def type_(value: Any, *others: Any) -> type:
    """Be `type` with one argument."""
    if others or isinstance(value, type):
        raise NotAllowed("type(x) tells the class of an object; it makes no classes here")
    return _harmless_class(type(value))


class _Formatter(string.Formatter):
    """Formats as `str.format` does, and reads attributes as answers do."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        first, rest = _split_field(field_name)
        value = self.get_value(first, args, kwargs)
        for is_attribute, key in rest:
            value = read(value, str(key)) if is_attribute else value[key]
        return value, first


def _split_field(name: str) -> tuple[int | str, Iterable[tuple[bool, int | str]]]:
    import _string  # type: ignore[import-not-found]

    first, rest = _string.formatter_field_name_split(name)
    return first, rest


def _format_of(owner: Any, name: str) -> Callable[..., str]:
    def format_(text: str, *args: Any, **kwargs: Any) -> str:
        if name == "format_map":
            return _Formatter().vformat(text, (), args[0])
        return _Formatter().vformat(text, args, kwargs)

    if isinstance(owner, super):
        raise NotAllowed(f"super().{name} is not there for answers")
    return format_ if isinstance(owner, type) else functools.partial(format_, owner)


def own_classes_only(decorator: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator, which writes to the class it is given, for classes of the answer."""

    def decorate(target: type | None = None, /, **options: Any) -> Any:
        if target is None:
            return functools.partial(decorate, **options)
        if target.__module__ != OWN_MODULE:
            raise NotAllowed(f"{decorator.__name__} is for classes that the answer defines")
        return decorator(target, **options)

    return decorate


def wraps(wrapped: Any, *parts: Any, **options: Any) -> Callable[[Any], Any]:
    """Be `functools.wraps`: see `update_wrapper`."""
    return lambda wrapper: update_wrapper(wrapper, wrapped)


def update_wrapper(wrapper: Any, wrapped: Any, *parts: Any, **options: Any) -> Any:
    """Be `functools.update_wrapper`, which writes to a function, for own functions only."""
    if not isinstance(wrapper, FunctionType) or wrapper.__module__ != OWN_MODULE:
        raise NotAllowed("wraps is for functions that the answer defines")
    wrapper.__name__ = str(getattr(wrapped, "__name__", wrapper.__name__))
    wrapper.__doc__ = getattr(wrapped, "__doc__", None)
    return wrapper


def singledispatch(function: Callable[..., Any]) -> Any:
    """Be `functools.singledispatch`, which evaluates annotations; here they name classes."""
    dispatcher: Any = functools.singledispatch(function)
    register = dispatcher.register

    def register_(kind: Any, func: Any = None) -> Any:
        if func is None and not isinstance(kind, type | UnionType):
            kind, func = _first_annotation(kind), kind
        return register(kind, func)

    dispatcher.register = register_
    return dispatcher


class singledispatchmethod(functools.singledispatchmethod):  # type: ignore[type-arg]  # noqa: N801
    """Be `functools.singledispatchmethod`, without evaluating annotations either."""

    def __init__(self, func: Callable[..., Any]) -> None:
        super().__init__(func)
        self.dispatcher = singledispatch(func)


def _first_annotation(function: Any) -> Any:
    if not isinstance(function, FunctionType) or not function.__annotations__:
        raise TypeError(f"name the class: @f.register(int), or annotate the argument of {function}")

    def evaluate(node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name) if not is_special(name):
                names = function.__globals__
                return names[name] if name in names else names["__builtins__"][name]
            case ast.Attribute(value=owner, attr=name):
                return read(evaluate(owner), name)
            case ast.BinOp(left=left, right=right):
                return evaluate(left) | evaluate(right)
        raise TypeError(f"{ast.unparse(node)} is no class, nor several with | between them")

    return evaluate(ast.parse(next(iter(function.__annotations__.values())), mode="eval").body)


class SimpleNamespace(types.SimpleNamespace):
    """Be `types.SimpleNamespace`, without special names: NumPy takes addresses from some."""

    def __init__(self, **attributes: Any) -> None:
        for name in attributes:
            _check_name(self, name)
        super().__init__(**attributes)


class _IsArray(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _arrays())


class Array(metaclass=_IsArray):
    """Stands for the class of NumPy's arrays, which takes any memory for objects of Python."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuse: functions such as `numpy.array` make arrays."""
        raise NotAllowed("make arrays by numpy.array, zeros, ...")

    def __class_getitem__(cls, kind: Any) -> type:
        """Be what annotations name."""
        return cls


class _ByClassOnly(enum.EnumType):
    """Makes enums in class statements, whose names are known, and by no call."""

    def _create_(cls, *names: Any, **options: Any) -> Any:
        raise NotAllowed("list the members of an enum in a class: class Name(Enum)")


ENUMS = {
    each.__name__: _ByClassOnly(each.__name__, (each,), _ByClassOnly.__prepare__("", (each,)))
    for each in (enum.Enum, enum.IntEnum, enum.StrEnum, enum.Flag, enum.IntFlag)
}


def reference(value: Any) -> weakref.ref[Any]:
    """Be `weakref.ref` without callbacks, which would run at unpredictable moments."""
    return weakref.ref(value)


def nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing: messages are dropped."""


class Silent:
    """Replace a stream or a logger, and do nothing: what is printed goes nowhere."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return nothing


class ProgressBar(Silent):
    """Be `tqdm.tqdm`: go through something, and show nothing."""

    write = staticmethod(nothing)

    def __init__(self, iterable: Iterable[Any] = (), *args: Any, **kwargs: Any) -> None:
        self._iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        yield from self._iterable

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]

    def __enter__(self) -> ProgressBar:
        return self

    __exit__ = nothing


for _public in (Array, ProgressBar, SimpleNamespace, singledispatchmethod, *ENUMS.values()):
    _public.__module__ = "public"  # which our classes are not
