"""The explorer of processes that share a GPU."""

from __future__ import annotations

from vramlab import catalogue
from vramlab.units import MIB
from vramlab_course.lessons.l01_cuda_context.explorer import context_explorer


def test_each_process_pays_for_a_context() -> None:
    model = catalogue.find("T4")
    rows = context_explorer.view("T4", processes=3, tensors_mib=64, freed_mib=32).tables[0].rows
    one = model.context_bytes + 64 * MIB + 32 * MIB  # context, tensors, cache
    assert [row[-1].split("\n")[1] for row in rows] == [f"{one:,} B", f"{3 * one:,} B"]
    assert [row[1].split("\n")[1] for row in rows] == [
        f"{model.context_bytes:,} B",
        f"{3 * model.context_bytes:,} B",
    ]


def test_as_many_as_fit_are_said_to_fit() -> None:
    model = catalogue.find("T4")
    fit = model.total_bytes // (model.context_bytes + 1024 * MIB)
    at_most = context_explorer.view("T4", fit, 1024, 0).summary
    too_many = context_explorer.view("T4", fit + 1, 1024, 0).summary
    assert f": they fit. At most {fit} do." in at_most
    assert f": they do not fit. At most {fit} do." in too_many
