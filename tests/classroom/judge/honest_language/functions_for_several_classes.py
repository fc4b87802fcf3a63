from functools import singledispatch, singledispatchmethod


@singledispatch
def size(x):
    return 0


@size.register
def _(x: int | float):
    return 4


@size.register(str)
def _(x):
    return len(x)


class A:
    @singledispatchmethod
    def f(self, x):
        return "any"

    @f.register
    def _(self, x: list):
        return "list"


result = size(1.5), size("abc"), size(()), A().f([]), A().f(1)
expected = (4, 3, 0, "list", "any")
