"""What was measured, shared by judges of one machine: each case is measured by one of them.

A folder that only they can read has a file for each case. It holds what is right, so no answer may
see it: it lies outside of all sandboxes, and the process that made it removes it with the run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

WAIT_SECONDS = 60
"""A judge that measures for others may have died: after so long they measure themselves."""

LOOK_SECONDS = 0.01

Truth = Mapping[str, Any]


class SharedTruths:
    """Truths by their keys; see `Judge`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, key: str) -> Truth | None:
        """Return a truth that was measured, if it was."""
        try:
            found: Truth = json.loads(self._file(key).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return found

    def claim(self, key: str) -> bool:
        """Return whether it is on the caller to measure: true for the first who asks."""
        try:
            os.close(os.open(self._claim(key), os.O_CREAT | os.O_EXCL, 0o600))
        except OSError:
            return False
        return True

    def give_up(self, key: str) -> None:
        """Leave it to others to measure."""
        self._claim(key).unlink(missing_ok=True)

    def wait(self, key: str) -> Truth | None:
        """Wait for the truth that another measures; None if it does not come."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (found := self.find(key)) is None and time.monotonic() < deadline:
            if not self._claim(key).exists():
                return self.find(key)
            time.sleep(LOOK_SECONDS)
        return found

    def put(self, key: str, truth: Truth) -> None:
        """Give others what was measured."""
        file = self._file(key)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(truth, default=dict), encoding="utf-8")
        part.replace(file)

    def _file(self, key: str) -> Path:
        return self._folder / f"{sha256(key.encode()).hexdigest()}.json"

    def _claim(self, key: str) -> Path:
        return self._file(key).with_suffix(".claim")
