"""`python -m vramlab`: the command line."""

from __future__ import annotations

import sys

from vramlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
