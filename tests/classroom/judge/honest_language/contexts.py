from contextlib import ExitStack, contextmanager

seen = []


@contextmanager
def part(name):
    seen.append(name)
    yield
    seen.append(-name)


with ExitStack() as stack:
    for each in (1, 2):
        stack.enter_context(part(each))
result = seen
expected = [1, 2, -2, -1]
