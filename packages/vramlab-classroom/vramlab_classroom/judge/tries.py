"""An answer to one case, beside the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vramlab_classroom.judge.mistakes import Mistake

Outcome = Mapping[str, Any]


@dataclass(frozen=True)
class Try:
    """An answer to one case, and the truth."""

    arguments: Mapping[str, Any]
    outcome: Outcome
    """From the pool: exact `type`, plain `value`, text; or the `problem`."""

    truth: int | str

    @property
    def is_right(self) -> bool:
        kind = self.outcome.get("type")
        return kind == type(self.truth).__name__ and self.outcome["value"] == self.truth

    @property
    def shown(self) -> str:
        return f"{self.outcome.get('shown', 'none')}"

    def agrees(self, mistake: Mistake) -> bool:
        """Return whether the mistake leads to this answer."""
        return bool(mistake.answer(**self.arguments) == self.outcome.get("value"))
