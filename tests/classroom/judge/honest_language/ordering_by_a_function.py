from functools import cmp_to_key

result = sorted([1, 3, 2], key=cmp_to_key(lambda a, b: b - a))
expected = [3, 2, 1]
