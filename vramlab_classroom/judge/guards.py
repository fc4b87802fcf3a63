"""How the code of an answer reads and writes attributes: every access of `restricted.py` is here.

Also what an answer gets in place of functions that read or write attributes by themselves, or do
more than an answer needs.
"""

from __future__ import annotations

import dataclasses
import functools
import string
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from vramlab.errors import VramlabError

OWN_MODULE = "__answer__"
"""`__module__` of what an answer defines, by which its own classes are known."""


def words(text: str) -> frozenset[str]:
    """Turn words with spaces between them into a set."""
    return frozenset(text.split())


class NotAllowed(VramlabError):
    """An answer uses something that is not there for answers; the message says what."""


CLOSED_PREFIXES = ("ag_", "co_", "cr_", "f_", "func_", "gi_", "tb_")
CLOSED_ATTRIBUTES = words(
    # They give away the object that an error came from, leave torch for raw memory or files, run
    # other code, or take memory away from tensors that others hold.
    "compile ctypes dump from_buffer from_file mro obj resize_ resize_as_ save set_ share_memory "
    "share_memory_ tofile"
)
HARMLESS = words("__class__ __doc__ __enter__ __exit__ __len__ __name__ __qualname__")
"""Special attributes that may be read of anything."""

METHODS = words(
    "__add__ __bool__ __call__ __contains__ __enter__ __exit__ __getitem__ __init__ __iter__ "
    "__len__ __lt__ __mul__ __neg__ __next__ __post_init__ __radd__ __repr__ __reversed__ __rmul__ "
    "__setitem__ __str__ __sub__ __truediv__"
)
"""Special methods that a class in an answer may define, and call through super()."""

_NONE = object()


def read(owner: Any, name: str) -> Any:
    """Read an attribute.

    Raises:
        NotAllowed: it is closed, or leads to a module or to the class of classes.
    """
    _check_name(owner, name)
    if name in ("format", "format_map") and _is_text(owner):
        return _format_of(owner, name)
    value = getattr(owner, name)
    if isinstance(value, ModuleType):
        raise NotAllowed(f".{name} is a module, which is not there for answers")
    return _harmless_class(value) if isinstance(value, type) else value


def _is_text(owner: Any) -> bool:
    kind = owner if isinstance(owner, type) else type(owner)
    return issubclass(kind, str | super)


def _harmless_class(value: type) -> type:
    """Refuse the classes that classes are made with, and ours, such as that of facades."""
    if issubclass(value, type) or value.__module__.startswith("vramlab_classroom"):
        raise NotAllowed(f"the class {value.__name__} is not there for answers")
    return value


def writable(owner: Any, name: str) -> Any:
    """Give an object that an answer may set an attribute of.

    Raises:
        NotAllowed: it may not.
    """
    _check_name(owner, name)
    own = type(owner).__module__ == OWN_MODULE or isinstance(owner, SimpleNamespace)
    if name in HARMLESS or not (own or isinstance(owner, _torch_writable())):
        kind = owner.__name__ if isinstance(owner, type) else type(owner).__name__
        raise NotAllowed(f"an answer may not change the attributes of {kind}")
    return owner


def _check_name(owner: Any, name: str) -> None:
    is_private = name.startswith("_") and name not in HARMLESS
    if is_private and (is_special(name) or not _is_own(owner)):
        raise NotAllowed(f"the attribute .{name} is not there for answers")
    if name.startswith(CLOSED_PREFIXES) or name in CLOSED_ATTRIBUTES:
        raise NotAllowed(f"the attribute .{name} is not there for answers")


def is_special(name: str) -> bool:
    """Tell whether a name is one of Python's own: `__name__`."""
    return name.startswith("__") and name.endswith("__")


def _is_own(owner: Any) -> bool:
    if isinstance(owner, super):
        owner = vars(super)["__thisclass__"].__get__(owner)
    kind = owner if isinstance(owner, type) else type(owner)
    return kind.__module__ == OWN_MODULE


def _torch_writable() -> tuple[type, ...]:
    # An answer that has torch objects has imported torch; a prediction never loads it.
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


def dataclass(target: type | None = None, /, **options: Any) -> Any:
    """Be `dataclasses.dataclass`, which writes to the class it is given, for own classes only."""

    def decorate(target: type) -> type:
        if target.__module__ != OWN_MODULE:
            raise NotAllowed("dataclass is for classes that the answer defines")
        return dataclasses.dataclass(**options)(target)

    return decorate if target is None else decorate(target)


def wraps(wrapped: Any) -> Callable[[Any], Any]:
    """Be `functools.wraps`, which writes to the function it is given, for own functions only."""

    def decorate(wrapper: Any) -> Any:
        if not isinstance(wrapper, FunctionType) or wrapper.__module__ != OWN_MODULE:
            raise NotAllowed("wraps is for functions that the answer defines")
        wrapper.__name__ = str(getattr(wrapped, "__name__", wrapper.__name__))
        wrapper.__doc__ = getattr(wrapped, "__doc__", None)
        return wrapper

    return decorate


def nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing: who writes messages, writes them to nobody here."""


class ProgressBar:
    """Be `tqdm.tqdm`: go through something, and show nothing."""

    def __init__(self, iterable: Iterable[Any] = (), *args: Any, **kwargs: Any) -> None:
        self._iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        yield from self._iterable

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    update = set_description = set_postfix = refresh = close = nothing
    write = staticmethod(nothing)


ProgressBar.__module__ = "tqdm"  # which classes of ours are not


def progress_over_range(*bounds: int, **kwargs: Any) -> ProgressBar:
    """Be `tqdm.trange`."""
    return ProgressBar(range(*bounds))


class Logger:
    """Be a logger that nobody reads."""

    debug = info = warning = error = exception = critical = log = setLevel = nothing  # noqa: N815

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802
        """Answer that nobody listens."""
        return False


def logger(name: str | None = None) -> Logger:
    """Be `logging.getLogger`."""
    return Logger()
