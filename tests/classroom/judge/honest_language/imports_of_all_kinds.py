import collections.abc, math as m
from collections import abc as kinds

result = isinstance([], collections.abc.Sequence), m.ceil(1.5), isinstance({}, kinds.Mapping)
expected = (True, 2, True)
