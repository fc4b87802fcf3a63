"""A program that runs in vramlab's own environment, and misses its packages there."""

from __future__ import annotations

import sys

import pytest

from vramlab.report.running.missing_package import missing_package_hint


def test_a_package_that_is_not_there_is_named_with_the_place() -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        import no_such_package.part  # noqa: F401
    hint = missing_package_hint(caught.value) or ""
    assert sys.prefix in hint
    assert "lacks no_such_package" in hint


@pytest.mark.parametrize("name", ["json.no_such_part", "winreg", "pytest.no_such_part"])
def test_parts_of_packages_that_are_there_say_nothing_of_the_environment(name: str) -> None:
    assert missing_package_hint(ModuleNotFoundError("No module", name=name)) is None
