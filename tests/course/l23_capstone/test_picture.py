"""A plan's peak as stacked bars, read from their artists; estimates and simulations by hand."""

from __future__ import annotations

import numpy as np
from matplotlib.patches import Rectangle

from vramlab.planner import CATEGORIES, Estimate, Moment, Plan, Report, Simulation
from vramlab.planner.events import REMAINDERS
from vramlab.programs.transformer_memory import Sizes
from vramlab.units import GIB, MIB
from vramlab_course.lessons.l23_capstone.picture import draw_plan
from vramlab_course.plots import Picture

PLAN = Plan(Sizes(vocabulary=512, width=128, layers=2, heads=4), "A100-40GB", batch=4)


def moment(**sizes_gib: int) -> Moment:
    found = {name.replace("_", " "): size * GIB for name, size in sizes_gib.items()}
    return Moment("the head", dict.fromkeys(CATEGORIES, 0) | found)


ESTIMATED = Report(Estimate(PLAN, 0, moment(parameters=4, optimizer_states=8, activations=5)))
SIMULATED = Report(
    ESTIMATED.estimate,
    Simulation(
        0,
        {
            "parameters": 4 * GIB,
            "optimizer states": 8 * GIB,
            "gradients": GIB,
            "temporaries": 6 * GIB,
            REMAINDERS: GIB,
        },
        allocated_bytes=20 * GIB,
        reserved_bytes=22 * GIB,
    ),
)


def bars(picture: Picture) -> dict[int, list[tuple[str, float, float]]]:
    """Label, start and width of each bar, by row."""
    rows: dict[int, list[tuple[str, float, float]]] = {}
    for container in picture.axes[0].containers:
        for patch in container:
            if isinstance(patch, Rectangle):
                row = round(patch.get_y() + patch.get_height() / 2)
                rows.setdefault(row, []).append(
                    (str(container.get_label()), patch.get_x(), patch.get_width())
                )
    return rows


def row_names(picture: Picture) -> list[str]:
    return [label.get_text() for label in picture.axes[0].get_yticklabels()]


def test_an_estimate_is_a_bar_of_its_categories() -> None:
    picture = draw_plan(ESTIMATED)
    assert row_names(picture) == ["estimated"]
    assert bars(picture) == {
        0: [
            ("parameters", 0, 4),
            ("optimizer states", 4, 8),
            ("activations", 12, 5),
        ]
    }
    assert picture.axes[0].get_xlabel() == "GiB"


def test_a_simulation_is_a_second_bar_of_what_it_tells_apart() -> None:
    picture = draw_plan(SIMULATED)
    assert row_names(picture) == ["estimated", "simulated"]
    # Gradients and temporaries, 1 + 6, are "all else"; 1 of remainders makes up the 20 allocated.
    assert bars(picture)[1] == [
        ("parameters", 0, 4),
        ("optimizer states", 4, 8),
        ("all else", 12, 7),
        ("unsplit remainders", 19, 1),
    ]


def test_the_memory_of_the_gpu_is_a_line() -> None:
    (line,) = draw_plan(ESTIMATED).axes[0].get_lines()
    # 42,298,834,944 B without the context's 437 MiB
    assert np.asarray(line.get_xdata()).tolist() == [(42_298_834_944 - 437 * MIB) / GIB] * 2
    assert line.get_label() == "memory beside the CUDA context: 38.97 GiB"
