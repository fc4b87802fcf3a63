class A:
    def __init__(self, x):
        self.x = x


class B(A):
    def __init__(self):
        A.__init__(self, 5)


result = B().x, int.__add__(2, 3)
expected = (5, 5)
