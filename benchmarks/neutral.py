"""What generated pages must not depend on: the settings and the cache of this user.

With one commit and the same packages, two machines make the same pages: programs run on the
portable engine, and what cuDNN answers comes from vramlab's table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from vramlab.cudnn.workspaces import SETTING as CUDNN
from vramlab.native.choice import ENVIRONMENT as ENGINE

CHOSEN = {ENGINE: "portable", CUDNN: "table"}
"""With these, nothing looks for what `vramlab native setup` may have put into the cache."""

_PREFIXES = ("VRAMLAB_", "PYTORCH_")
"""Of environment variables that change what vramlab or PyTorch answers."""


@contextmanager
def environment() -> Iterator[None]:
    """Answer as on a machine where nothing is set up; the processes that are started do, too."""
    with mock.patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith(_PREFIXES)]:
            del os.environ[name]
        os.environ.update(CHOSEN)
        yield
