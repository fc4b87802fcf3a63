def f(x: unknown.thing[1]) -> also.unknown:
    y: no.where = x
    return y


result = f(2)
expected = 2
