import collections
from typing import NamedTuple


class Pair(NamedTuple):
    way: str
    number: int = 0


Point = collections.namedtuple("Point", "x y")
result = Pair("f")._replace(number=2)._asdict(), Point._fields, Point(1, y=2)._replace(x=3).x
expected = ({"way": "f", "number": 2}, ("x", "y"), 3)
