"""A model that is not the built-in transformer: who makes it, and what it is called with.

    CustomModel("net.py:build", build, inputs=(Input("float32[B,3,224,224]"),),
                target=Input("int64[B]"), loss=torch.nn.functional.cross_entropy)

Knows nothing of torch, so that bad input is refused before it is imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vramlab.errors import VramlabError

DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
_INPUT = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<dtype>\w+)\[(?P<shape>[^\]]*)\]")


class UnusableModel(VramlabError, ValueError):
    """A model that cannot be made or called; the message says why, and what to do."""


@dataclass(frozen=True)
class Input:
    """A tensor that a model is called with: `float32[B,3,224,224]` or `input_ids=int64[B,S]`.

    In the shape B is the sequences, images or rows that a GPU takes at a time, and S the length of
    each (`--batch`, `--micro-batch` and `--sequence`).

    Raises:
        UnusableModel: it does not read like that.
    """

    text: str

    def __post_init__(self) -> None:
        match = _INPUT.fullmatch(self.text.replace(" ", ""))
        if match is None:
            raise UnusableModel(
                f"invalid tensor {self.text!r}: write dtype and shape, for example "
                '"float32[B,3,224,224]" or "input_ids=int64[B,S]"'
            )
        if match["dtype"] not in DTYPES:
            raise UnusableModel(
                f"invalid tensor {self.text!r}: unknown dtype {match['dtype']!r}, use one of "
                f"{', '.join(DTYPES)}"
            )
        for length in match["shape"].split(","):
            if length not in ("B", "S") and not (length.isdecimal() and int(length)):
                raise UnusableModel(
                    f"invalid tensor {self.text!r}: {length!r} is not a dimension; use a number, "
                    "B for the micro-batch size, or S for the sequence length"
                )

    @property
    def name(self) -> str:
        """Of the keyword that it is passed by; "" for one that is passed by its position."""
        return self._parts["name"] or ""

    @property
    def dtype(self) -> str:
        """As torch names it."""
        return self._parts["dtype"]

    def shape(self, batch: int, sequence: int) -> tuple[int, ...]:
        """Return the shape for so many sequences of so many tokens."""
        known = {"B": batch, "S": sequence}
        return tuple(known.get(length) or int(length) for length in self._lengths)

    @property
    def has_tokens(self) -> bool:
        """Whether the length of a sequence is in its shape."""
        return "S" in self._lengths

    @property
    def is_divided(self) -> bool:
        """Whether each micro-batch has a part of it, along its first axis."""
        return self._lengths[0] == "B"

    @property
    def _lengths(self) -> list[str]:
        return self._parts["shape"].split(",")

    @property
    def _parts(self) -> Mapping[str, str]:
        match = _INPUT.fullmatch(self.text.replace(" ", ""))
        assert match is not None
        return match.groupdict()


@dataclass(frozen=True)
class CustomModel:
    """A model of anybody's, and one call of it in training."""

    name: str
    """What it is called in reports."""
    factory: Callable[[], Any]
    """Returns the `torch.nn.Module`; called again for each step that is run."""
    inputs: tuple[Input, ...]
    """What it is called with."""
    target: Input | None = None
    """What the loss is compared with, beside the model's output."""
    loss: Callable[..., Any] | None = None
    """Called with output and target (if there is one); if None, the model returns its loss: a
    scalar, or `.loss`, `["loss"]` or the first item of what it returns."""
    most_tokens: int | None = None
    """The longest sequence that it has positions for, if there is a limit."""
    kept: tuple[tuple[str, int], ...] = ()
    """How many layers are kept of which list of layers; of all others, all."""

    def cut(self, kept: Mapping[str, int]) -> CustomModel:
        """Give the same with so many layers in each of these lists."""
        return replace(self, kept=tuple(sorted(kept.items())))
