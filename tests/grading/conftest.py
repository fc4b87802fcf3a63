"""What the tests of grading share: a bench, the toy exercise, and classes that nbgrader grades."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import toy_exercise

from vramlab.grading.bench import Bench
from vramlab.grading.task import Exercise

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    with Bench(search_path=[HERE]) as bench:
        yield bench


@pytest.fixture(scope="session")
def toy() -> Exercise:
    return toy_exercise.EXERCISE
