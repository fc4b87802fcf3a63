"""What the native engine refuses."""

from __future__ import annotations

from vramlab.errors import VramlabError


class NativeEngineError(VramlabError):
    """The native engine cannot be set up, or not run; the message says why, and what to do."""
