"""The data parallel explorer: sums of the closed form are what is measured, on every GPU."""

from __future__ import annotations

import pytest

from vramlab_course.lessons.l19_dp_and_ddp.explorer import WAYS, data_parallel_explorer

SMALL = {"gpus": 2, "batch": 64, "optimizer": "SGD", "classes": 1024}


@pytest.mark.parametrize("way", WAYS)
def test_predicted_is_measured(way: str) -> None:
    view = data_parallel_explorer.view(**SMALL, way=way)
    (table,) = view.tables
    assert all(predicted == measured for _, predicted, measured, _ in table.rows)
    assert len(table.rows) == (2 if way.startswith("Data") else 1)


def test_the_two_meanings_of_batch_size() -> None:
    assert "32 of 64 rows on each GPU." in data_parallel_explorer.view(**SMALL, way=WAYS[0]).summary
    ddp = data_parallel_explorer.view(**SMALL, way=WAYS[2]).summary
    assert "64 rows on each GPU, 128 in a step." in ddp
    # 13 weights of 4 MiB; two ranks send each piece once to and once fro: 52 MiB
    assert "sends 52 MiB in a step" in ddp
