import functools
import sys
from types import TracebackType


class Timer:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"Timer({self.__dict__})"

    def __enter__(self):
        return self

    def __exit__(self, kind: type | None, error: object, traceback: TracebackType | None) -> None:
        print(self.name, file=sys.stderr)


def named(function):
    def call():
        return function()

    return functools.update_wrapper(call, function)


@named
def f():
    with Timer("f") as timer:
        return repr(timer), dict(vars(timer)), Timer.__module__ == __name__


result = f(), f.__name__
expected = ("Timer({'name': 'f'})", {"name": "f"}, True), "f"
