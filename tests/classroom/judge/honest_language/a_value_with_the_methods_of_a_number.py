from functools import total_ordering


@total_ordering
class Bytes:
    __slots__ = ("size",)

    def __init__(self, size):
        self.size = size

    def __eq__(self, other):
        return self.size == other.size

    def __lt__(self, other):
        return self.size < other.size

    def __hash__(self):
        return hash(self.size)

    def __matmul__(self, other):
        return Bytes(self.size * other)

    def __rmatmul__(self, other):
        return self @ other

    def __iadd__(self, other):
        self.size += other
        return self

    def __floordiv__(self, other):
        return self.size // other

    def __index__(self):
        return self.size

    __radd__ = __iadd__


b = Bytes(3)
b += 1
result = [(2 @ b).size, b // 3, b >= Bytes(3), len({b, Bytes(4)}), range(9)[b], (1 + b).size]
expected = [8, 1, True, 1, 4, 5]
