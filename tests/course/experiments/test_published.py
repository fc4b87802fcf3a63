"""The documents' figures as data."""

from __future__ import annotations

from decimal import Decimal

import pytest

from vramlab_course.experiments import figure, figures


def test_digits_stay_as_printed() -> None:
    assert str(figure("fp16-linear-torchinfo").number(2)) == "2.10"
    assert figure("fp16-linear-torchinfo").value == [
        Decimal("20.97"),
        Decimal("41.94"),
        Decimal("2.10"),
        Decimal("65.01"),
    ]
    assert figure("tiny-reserved").number() == 2_097_152


def test_memory_and_bytes() -> None:
    assert str(figure("three-linear-peak").memory()) == "360.2744140625 MiB"
    assert figure("three-linear-peak").nearest_bytes() == 377_775_104
    assert figure("oom-anatomy").unit_of(3) == "MiB"
    assert figure("oom-anatomy").nearest_bytes(3) == 456_654_848  # 435.5 x 2**20
    assert figure("tiny-allocated").is_memory
    assert not figure("adamw-step-extra").is_memory


def test_numbers_and_words_as_printed() -> None:
    assert figure("bert-batch-linear").printed() == "linear"
    assert figure("three-linear-forward-again").printed() == "160.0"
    assert figure("oom-anatomy").printed(3) == "435.50"
    with pytest.raises(TypeError, match="'oom-anatomy' is not a single number"):
        figure("oom-anatomy").printed()


def test_every_figure_says_where_it_stands() -> None:
    for entry in figures().values():
        documents = ("000", "001", "002", "003", "004", "arXiv ", "pytorch/")
        assert entry.source.startswith(documents), entry.id
        assert entry.what, entry.id
        if isinstance(entry.unit, tuple):
            assert len(entry.unit) == len(entry.value), entry.id
