from dataclasses import dataclass, field, replace


@dataclass(slots=True, frozen=True, order=True, kw_only=True)
class Block:
    size: int
    names: tuple[str, ...] = field(default=(), compare=False)
    half: int = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "half", self.size // 2)


result = replace(Block(size=3), size=5).half, Block(size=1) < Block(size=2)
expected = (2, True)
