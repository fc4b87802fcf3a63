"""A step's picture shows what was recorded, in proportion to the model's times and to bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vramlab import VirtualGPU, catalogue
from vramlab.measure import Rates, StepEvent, StepWork, put_in_time, record_events
from vramlab.programs.alone import alone
from vramlab.units import MIB
from vramlab_course.lessons.l20_zero.experiment import record_step
from vramlab_course.plots import draw_steps
from vramlab_course.plots.steps import (
    COMMUNICATES,
    COMPUTES,
    computing_share,
    hidden_share,
    spans_of,
)
from vramlab_course.widgets import steps_explorer

T4 = catalogue.find("T4")
A100 = catalogue.find("A100-40GB")


@cache
def ddp_steps() -> dict[str, list[StepEvent]]:
    """Lesson 19's program: 16 layers of 4 MiB on rank 0 of 4."""
    steps = {}
    with VirtualGPU("T4"), alone(4):
        model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(16))).cuda()
        parallel = DistributedDataParallel(model)
        for rows in (1024, 256):
            for _ in range(3):
                parallel.zero_grad()
                with record_events(dict(model.named_children())) as events:
                    parallel(torch.zeros(rows, 1024, device="cuda")).sum().backward()
            steps[f"{rows:,} rows"] = events
    return steps


@cache
def zero_steps() -> dict[int, list[StepEvent]]:
    """Lesson 20's: 8 layers of 12,500 x 12,500 on rank 0 of 8."""
    with VirtualGPU("A100-40GB"):
        return {
            stage: record_step(stage, 8, layers=8, width=12_500, rows=2048)  # type: ignore[arg-type]
            for stage in (2, 3)
        }


def works(events: Sequence[StepEvent]) -> list[StepWork]:
    return [each for each in events if isinstance(each, StepWork)]


def test_lanes_have_all_that_was_recorded_and_are_as_long() -> None:
    rates = Rates.of(T4, "PCI Express", matmul=0.5)
    for events in ddp_steps().values():
        (step,) = put_in_time([events], rates)
        spans = list(spans_of(step))
        seconds = {
            lane: sum(span.end - span.start for span in spans if span.lane == lane)
            for lane in (COMPUTES, COMMUNICATES)
        }
        for lane, kinds in ((COMPUTES, {"operator"}), (COMMUNICATES, {"collective"})):
            recorded = [each for each in works(events) if each.kind in kinds]
            assert seconds[lane] == pytest.approx(sum(map(rates.seconds, recorded)), rel=1e-9)
        # 16 layers forward and backward, each a box
        kinds = Counter(span.kind for span in spans)
        assert (kinds["forward"], kinds["backward"]) == (16, 16)
        assert kinds["all-reduce"] == sum(each.kind == "collective" for each in works(events)) == 4
        # 2 x 3/4 of 64 MiB around a ring of four
        sent = sum(each.moved_bytes for each in works(events) if each.kind == "collective")
        assert sent == 2 * 3 * 64 * MIB // 4


def test_boxes_and_curve_are_drawn_where_they_are_in_time() -> None:
    rates = Rates.of(A100, "NVLink")
    (step,) = put_in_time([zero_steps()[3]], rates)
    picture = draw_steps({"": step}, rates)
    above, below = picture.axes
    drawn = sorted(
        (path.vertices[:, 0].min(), path.vertices[:, 0].max())
        for kind in above.collections
        for path in kind.get_paths()
    )
    expected = sorted((1000 * span.start, 1000 * span.end) for span in spans_of(step))
    assert np.array(drawn) == pytest.approx(np.array(expected))
    line = below.get_lines()[0]
    assert list(line.get_xdata())[:-1] == pytest.approx([1000 * at for at, _ in step.held()])
    assert max(line.get_ydata()) * 2**30 == pytest.approx(step.peak_bytes)
    assert step.peak_bytes == max(each.peak_bytes for each in works(zero_steps()[3]))
    assert "Assumed of A100-40GB: 80% of peak FLOP/s" in below.get_xlabel()
    assert picture.alt.startswith("The GPU computes ")


def test_what_lesson_19_says_of_its_picture() -> None:
    def shares(link: int) -> list[str]:
        rates = Rates(T4, link * 1e9, matmul=0.5)
        timed = [put_in_time([events], rates)[0] for events in ddp_steps().values()]
        return [f"{hidden_share(step):.0%}" for step in timed]

    assert shares(300) == ["100%", "100%"]
    rates = Rates(T4, 16e9, matmul=0.5)
    large, small = (put_in_time([events], rates)[0] for events in ddp_steps().values())
    assert hidden_share(large) > hidden_share(small)
    # With 256 rows, backward's last product ends while the second bucket is on its way.
    last = [each for each in small.computing() if each.work.name == "aten.mm"][-1]
    second = [each for each in small.carried() if each.work.name == "all-reduce"][1]
    assert second.start_s < last.end_s < second.end_s


def test_what_lesson_20_says_of_its_picture() -> None:
    def timed(link: float) -> list[float]:
        rates = Rates(A100, link, matmul=0.5)
        return [computing_share(put_in_time([each], rates)[0]) for each in zero_steps().values()]

    assert A100.pcie_bandwidth_bytes_per_s // 10**9 == 31
    stage_2, stage_3 = timed(32e9)
    assert stage_3 < min(0.5, stage_2)
    assert min(timed(300e9)) > 0.97
    # Stage 3 gathers the last layer again at once, and all others in backward; stage 2 does not.
    gathered = [Counter(each.name for each in works(events)) for events in zero_steps().values()]
    assert [(each["all-gather"], each["reduce-scatter"]) for each in gathered] == [(8, 8), (16, 8)]
    peaks = [max(each.peak_bytes for each in works(events)) for events in zero_steps().values()]
    assert peaks[1] < peaks[0]


def test_sliders_change_times_and_run_nothing() -> None:
    explorer = steps_explorer(ddp_steps(), gpu="T4", link=16)
    before = explorer.output.value
    explorer.controls["link"].value = 300
    assert "80% of 300 GB/s" not in before
    assert "hides 100% of the communication" in explorer.output.value
