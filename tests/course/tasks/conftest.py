"""What the tests of exercises share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _warm_job_server(warm_job_server: None) -> None:
    """Start no pool from scratch, in kernels neither."""
