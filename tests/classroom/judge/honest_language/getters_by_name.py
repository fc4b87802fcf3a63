from operator import attrgetter, methodcaller

words = sorted(["bb", "a"], key=methodcaller("__len__"))
result = words, attrgetter("real", "imag")(3), attrgetter("numerator.real")(4)
expected = ["a", "bb"], (3, 0), 4
