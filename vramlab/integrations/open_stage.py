"""The one stage that a trainer is in: hooks tell when it begins and ends, not a with statement."""

from __future__ import annotations

from contextlib import ExitStack

from vramlab.report.evidence.stages import stage


class OpenStage:
    """At most one stage at a time."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._open = ExitStack()

    def begin(self, name: str) -> None:
        """Begin a stage; the one before ends. One that goes on already does so."""
        if name == self._name:
            return
        self.end()
        self._open.enter_context(stage(name))
        self._name = name

    def end(self, name: str | None = None) -> None:
        """End the stage, or only if it has this name."""
        if name in (None, self._name):
            self._open.close()
            self._name = None
