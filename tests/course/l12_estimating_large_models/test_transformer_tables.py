"""Lesson 12's tables, against arithmetic on paper and small measurements."""

from __future__ import annotations

import pytest

import vramlab
from vramlab import catalogue
from vramlab.planner.estimate import estimate
from vramlab.planner.plan import Plan
from vramlab.programs import transformer_memory
from vramlab.programs.transformer_memory import PRECISIONS, Run, Sizes
from vramlab_course import experiments
from vramlab_course.lessons.l12_estimating_large_models.bytes_per_parameter_experiment import (
    per_parameter_table,
)
from vramlab_course.lessons.l12_estimating_large_models.transformer_tables import (
    gpus_table,
    layer_terms_table,
    measure_layer,
    most_parameters,
)

pytestmark = pytest.mark.long

SMALL = Sizes(vocabulary=1024, positions=256, width=256, layers=1, heads=4)


def test_every_precision_stands_in_the_table_of_bytes_per_parameter() -> None:
    table = per_parameter_table(experiments.run_as_published("bytes-per-parameter"))
    rows = {(name, row[1]): row[2:] for row in table.rows for name in row[0].split("\n")}
    assert len(rows) == 3 * len(PRECISIONS)
    # Weights, casts, gradients, states, and all that lasts (without the casts).
    assert rows["float32", "adamw"] == ("4", "0", "4", "8", "16")
    assert rows["autocast float16", "adamw"] == ("4", "2", "4", "8", "16")
    assert rows["pure bfloat16", "sgd with momentum"] == ("2", "0", "2", "2", "6")
    assert rows["float16, float32 master", "adamw"] == ("6", "0", "2", "8", "16")


def test_a_layers_terms_are_told_per_number() -> None:
    runs = {name: Run(2, 256, name) for name in ("pure bfloat16", "autocast bfloat16", "float32")}
    rows = {row[0]: row[1:] for row in layer_terms_table(SMALL, runs).rows}
    assert rows["attention norm: input"] == ("sbh", "2", "2", "4", "4")
    assert rows["attention: softmax"] == ("as²b", "2", "2", "4", "4")
    assert rows["feed-forward norm: statistics"] == ("sb", "0", "8", "8", "8")
    assert rows["attention: casts of weights"] == ("weights of attention", "0", "0", "2", "0")
    # 34 x 2 x 256 x 256 + 5 x 2 x 4 x 256 x 256 = 7,077,888 B = 6.75 MiB
    assert rows["all"][1] == "6.75 MiB"


def test_a_layer_is_measured_as_what_one_more_keeps() -> None:
    run = Run(2, 128, "autocast bfloat16")
    with vramlab.VirtualGPU("A100-40GB"):
        assert measure_layer(SMALL, run) == transformer_memory.layer_kept_bytes(SMALL, run)


def test_gpus_are_listed_by_their_memory_and_tried_where_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = [catalogue.find(name) for name in ("A10", "RTX-3060", "T4")]
    monkeypatch.setattr(catalogue, "common", lambda: some)
    large = Sizes(vocabulary=1024, positions=512, width=2048, layers=12, heads=16)
    # 607 million parameters x 16 B and 4 B in the optimizer's step: 11.3 GiB on 11.6 GiB, and more.
    table = gpus_table(large, Run(16, 512), tried=("RTX-3060",))
    assert [row[0] for row in table.rows] == ["RTX-3060", "T4", "A10"]  # 12, 16 and 24 GB
    assert [row[4] for row in table.rows] == ["out of memory", "", ""]
    small = gpus_table(SMALL, Run(2, 128, "autocast bfloat16", attention="flash"), tried=("A10",))
    outcomes = {row[0]: row[3:] for row in small.rows}
    assert outcomes["T4"] == ("no kernel", "")
    assert outcomes["A10"][1].startswith("fits, ")


def test_the_largest_model_of_a_gpu_trains_on_it_and_the_next_one_does_not() -> None:
    # On a T4, the blocks of 14 layers would fit together, and are in pieces: 12 train.
    run, t4 = Run(4, 1024), catalogue.find("T4")
    sizes = {layers: Sizes(width=64 * layers, layers=layers, heads=layers) for layers in (12, 14)}
    assert most_parameters(run, t4) == sizes[12].parameters()
    assert estimate(Plan.of_run(sizes[14], run, t4)).peak_bytes < t4.total_bytes - t4.context_bytes
    lean = Run(1, 1024, "autocast float16", "sgd", attention="efficient", checkpointing="full")
    # 32 layers, 1,716 million parameters, against 124: what the lesson says of its first row.
    assert most_parameters(lean, t4) > 13 * most_parameters(run, t4)
