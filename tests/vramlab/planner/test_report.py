"""What is said of plans: verdicts, tables, and plans in a sentence; on estimates made by hand."""

from __future__ import annotations

import re

import pytest

from vramlab.planner import (
    CATEGORIES,
    Estimate,
    Moment,
    Plan,
    Report,
    Simulation,
    estimate,
    find_model,
    report,
)
from vramlab.planner.events import REMAINDERS
from vramlab.programs.transformer_memory import Sizes
from vramlab.units import GIB, MIB

SMALL = Sizes(vocabulary=512, positions=64, width=64, layers=1, heads=4)
A100_BYTES = 42_298_834_944 - 458_227_712
"""What an A100-40GB has beside its CUDA context."""


def estimated(stage: int = 0, plan: Plan | None = None, **sizes: int) -> Estimate:
    found = dict.fromkeys(CATEGORIES, 0) | {name.replace("_", " "): b for name, b in sizes.items()}
    return Estimate(plan or Plan(SMALL, "A100-40GB", sequence=64), stage, Moment("the head", found))


def simulated(reserved_bytes: int = GIB, **sizes: int) -> Simulation:
    found = {name.replace("_", " "): size for name, size in sizes.items()}
    return Simulation(0, found | {REMAINDERS: 512}, sum(sizes.values()) + 512, reserved_bytes)


# ---- Verdicts ----


@pytest.mark.parametrize(
    ("peak_bytes", "fits", "said"),
    [
        (A100_BYTES // 2, True, " 50%"),
        (A100_BYTES, True, " 100%"),
        (A100_BYTES + 1, False, " 38.97 GiB"),
        (A100_BYTES * 3 // 2, False, " 19.48 GiB"),  # half of 38.97 GiB
    ],
)
def test_an_estimate_decides_by_what_the_gpu_has(peak_bytes: int, fits: bool, said: str) -> None:
    found = Report(estimated(activations=peak_bytes))
    assert found.fits is fits
    assert said in found.verdict()


def test_a_simulation_has_the_last_word() -> None:
    too_much = estimated(activations=2 * A100_BYTES)
    found = Report(too_much, simulated(reserved_bytes=A100_BYTES // 4, activations=MIB))
    assert found.fits
    # 41,840,607,232 B / 4 are 9.74 GiB.
    assert re.findall(r"\d+(?:\.\d+ GiB|%)", found.verdict()) == ["9.74 GiB", "25%", "38.97 GiB"]


# ---- Tables ----


def test_the_table_has_the_categories_that_are_there_and_their_shares() -> None:
    table = Report(estimated(parameters=3 * MIB, activations=MIB)).table()
    assert table.rows == (
        ("parameters", "3.0000 MiB\n3,145,728 B", "75.0%"),
        ("activations", "1.0000 MiB\n1,048,576 B", "25.0%"),
        ("peak", "4.0000 MiB\n4,194,304 B", "100.0%"),
    )


def test_the_table_compares_what_a_simulation_tells_apart() -> None:
    found = Report(
        estimated(parameters=4 * MIB, optimizer_states=8 * MIB, inputs=512, activations=MIB),
        simulated(parameters=4 * MIB, optimizer_states=8 * MIB, inputs=512, gradients=3 * MIB),
    )
    table = found.table()
    assert [(row[0], row[3]) for row in table.rows] == [
        ("parameters", "equal"),
        ("optimizer states", "equal"),
        ("inputs", "equal"),
        # Gradients of 3 MiB instead of activations of 1 MiB.
        ("activations and temporaries", "+2,097,152 B"),
        ("unsplit remainders", "+512 B"),
        ("peak", "+2,097,664 B"),
    ]
    # 4 + 8 + 1 MiB + 512 B, and 4 + 8 + 3 MiB + 2 x 512 B.
    assert table.rows[-1][1:3] == (
        "13.0005 MiB\n13,632,000 B",
        "15.0010 MiB\n15,729,664 B",
    )
    assert "1024.00 MiB" in table.notes[0]  # reserved at most


def test_the_first_changes_are_listed_with_what_they_spare() -> None:
    found = report(Plan(find_model("gpt2-xl"), "A100-40GB"))
    table = found.changes(8)
    assert [row[0] for row in table.rows] == [each.what for each in found.next_changes()[:8]]
    peaks = {row[0]: row[1] for row in table.rows}
    assert peaks["full activation checkpointing"].endswith(" GiB, fits")
    # 41.9e9 B of the 41.8e9 that there are.
    assert peaks["micro-batches of 4"] == "about 39.01 GiB, does not fit"
    assert len(found.changes().rows) == 6
    # 45.71 GiB without, 29.47 GiB with PyTorch 2.13; in 2.15 cuBLAS keeps no workspaces.
    then_bytes = estimate(found.plan.but(checkpointing="full")).peak_bytes
    assert table.rows[[row[0] for row in table.rows].index("full activation checkpointing")] == (
        "full activation checkpointing",
        f"{then_bytes / GIB:.2f} GiB, fits",
        f"{(found.estimate.peak_bytes - then_bytes) / GIB:.2f} GiB",
        "a second forward pass: at most a third more FLOPs",
    )


# ---- Reports ----


def test_a_report_is_an_estimate_and_a_simulation_if_asked_for() -> None:
    plan = Plan(SMALL, batch=1, sequence=64)
    assert report(plan).simulation is None
    found = report(plan, simulated=True)
    assert found.plan == plan
    assert found.simulation is not None
    # A step this small peaks in the optimizer's step, where the closed form is exact.
    assert found.simulation.peak_bytes == found.estimate.peak_bytes
    assert found.simulation.reserved_bytes > found.simulation.allocated_bytes


def test_the_stage_that_holds_most_is_the_one_simulated() -> None:
    # The last of two stages has the head, whose logits of 8192 words weigh most.
    sizes = Sizes(vocabulary=8192, positions=64, width=64, layers=2, heads=4)
    plan = Plan(sizes, batch=2, micro_batch=1, sequence=64, precision="pure bfloat16", pipeline=2)
    found = report(plan, simulated=True)
    assert found.estimate.stage == 1
    assert found.simulation is not None
    assert found.simulation.stage == 1
    assert "in stage 1" in found.table().caption


# ---- In a sentence ----
