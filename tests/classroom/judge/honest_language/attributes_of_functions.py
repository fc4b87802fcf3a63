import functools


def counted(function):
    @functools.wraps(function)
    def count_and_call(*args):
        count_and_call.calls += 1
        return function(*args)

    count_and_call.calls = 0
    return count_and_call


@counted
def double(x):
    return 2 * x


double(double(1))
result = double.calls, getattr(double, "limit", None)
expected = 2, None
