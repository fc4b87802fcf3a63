from enum import Enum, IntFlag, auto


class Way(Enum):
    FORWARD = "f"
    BACKWARD = "b"


class Kind(IntFlag):
    A = auto()
    B = auto()


result = Way("b").name, [w.value for w in Way], Kind.A | Kind.B, isinstance(Way.FORWARD, Enum)
expected = ("BACKWARD", ["f", "b"], 3, True)
