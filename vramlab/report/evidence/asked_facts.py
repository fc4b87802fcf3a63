"""Which facts of its GPU a run depends on.

Kernels size workspaces by the number of multiprocessors, PyTorch chooses kernels by the compute
capability, and programs ask for the memory. Two GPUs that are equal in all that a run has asked for
do the same to it, as long as both have memory enough.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from vramlab.catalogue import GPUModel

SIZE = "total_bytes"

_NAMES = frozenset(field.name for field in fields(GPUModel)) - {
    *("name", "aliases", "sources", "historical_contexts"),  # what the catalogue says of itself
    "context_bytes",  # every GPU has its own, which nothing else depends on
}


@dataclass(frozen=True)
class NotingModel(GPUModel):
    """A GPU model that notes which of its figures are read."""

    @classmethod
    def of(cls, model: GPUModel) -> NotingModel:
        """Copy a model of the catalogue."""
        noting = cls(**{field.name: getattr(model, field.name) for field in fields(GPUModel)})
        object.__setattr__(noting, "_asked", set())
        return noting

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if name in _NAMES:
            object.__getattribute__(self, "__dict__").get("_asked", set()).add(name)
        return value

    def forget(self) -> None:
        """Start again: what was read until now, vramlab has read."""
        self.__dict__["_asked"].clear()

    def names_read(self, by_size: bool) -> tuple[str, ...]:
        """List the figures that were read, by name.

        Args:
            by_size: whether the size of the memory has decided something without being read here,
                such as the share of it that a program may have.
        """
        return tuple(sorted({*self.__dict__["_asked"], *([SIZE] if by_size else [])}))
