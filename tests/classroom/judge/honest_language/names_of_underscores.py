class Second:
    __ = 1

    def of(self, _, __, ___=3):
        return __ + ___ + self.__


_, *__ = 1, 2
result = (lambda _, __: __)(1, 4), Second().of(1, 2), __
expected = 4, 6, [2]
