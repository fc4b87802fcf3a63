"""A process that has imported all that jobs need, of which pools are forked.

A pool of its own process imports torch, which takes longer than judging a notebook. Where many
pools are started on one machine without a sandbox each, they are forked of one process instead.
Like a pool that was started, a forked one has never run a learner's code; it differs in nothing
but what it has imported.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from vramlab.context import Closing
from vramlab_classroom.sandbox.packages import search_path

VARIABLE = "VRAMLAB_WARM_JOB_SERVER"
"""Environment variable with the path of the socket that hands over pools."""


class WarmJobServer(Closing):
    """Gives pools to clients of its `address`, and ends them when it is closed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Start the process; it imports while others go on.

        Args:
            environment: of the process, and of all pools; where packages lie is added.
        """
        self._folder = TemporaryDirectory(prefix="vramlab-")
        self.address = Path(self._folder.name, "pools")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"{self.address}")
            listening.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "vramlab_classroom.judge.job_server"],
                stdin=listening.fileno(),
                cwd=self._folder.name,
                env={**environment, "PYTHONPATH": os.pathsep.join(map(str, search_path()))},
                start_new_session=True,
            )
        # The first to connect is who ends the process.
        self._lifeline = connect(self.address)

    def close(self) -> None:
        """End the process, and give its folder back."""
        self._lifeline.close()
        with self._process:
            self._process.kill()
        self._folder.cleanup()


def connect(address: str | os.PathLike[str]) -> socket.socket:
    """Connect to the socket that hands over pools.

    Raises:
        OSError: there is none any more.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(f"{address}")
    except OSError:
        connection.close()
        raise
    return connection
