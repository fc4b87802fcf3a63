"""The seed of the hidden cases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vramlab_classroom.judge.seeds import hidden_seed


def test_a_seed_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "hidden_seed.txt"
    seed = hidden_seed(path)
    assert re.fullmatch("[0-9a-f]{32}", seed)
    assert path.stat().st_mode & 0o777 == 0o600
    assert hidden_seed(path) == seed


def test_the_environment_goes_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VRAMLAB_HIDDEN_SEED", "of the cluster")
    assert hidden_seed(tmp_path / "hidden_seed.txt") == "of the cluster"
    assert not (tmp_path / "hidden_seed.txt").exists()
