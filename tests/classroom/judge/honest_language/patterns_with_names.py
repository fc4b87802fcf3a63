from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    SMALL = 1
    LARGE = 2
    HUGE = 3


@dataclass
class Block:
    size: int


def name(value):
    match value:
        case Kind.SMALL:
            return "small"
        case Kind.LARGE | Kind.HUGE:
            return "large"
        case [Kind.SMALL, count] if count > 1:
            return f"{count} small"
        case {"kind": Kind.LARGE | Kind.HUGE, **others}:
            return f"large with {len(others)}"
        case {Kind.SMALL: count}:
            return f"{count} small by name"
        case (Block() as block, Kind.SMALL | Block()):
            match block:
                case Block() if block.size > 1:
                    return "a large block and more"
            return "a small block and more"
        case [Block(), *rest]:
            return f"a block and {len(rest)}"
        case Block() | None:
            return "a block, or none"
        case -1 | 1:
            return "one"
        case str():
            return "text"
        case other:
            return other


values = (
    Kind.SMALL, Kind.HUGE, [Kind.SMALL, 2], {"kind": Kind.LARGE, "x": 1}, {Kind.SMALL: 3},
    (Block(2), Block(1)), (Block(1), Kind.SMALL), [Block(1), 2], -1, "x", 7,
)  # fmt: skip
result = [name(each) for each in values]
expected = ["small", "large", "2 small", "large with 1", "3 small by name"]
expected += ["a large block and more", "a small block and more", "a block and 1", "one", "text", 7]
