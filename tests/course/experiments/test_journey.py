"""The running model: what each lesson of parts 2 to 4 makes of its training step."""

from __future__ import annotations

import pytest

from vramlab.measure import Category
from vramlab_course.experiments.journey import (
    BATCH,
    EXPLAINED,
    LENGTH,
    MODEL,
    STOPS,
    JourneySetting,
    explained_by,
    measure_journey,
    measure_setting,
)

PARAMETERS_BYTES = 4 * MODEL.parameters()


def test_begins_with_sixteen_bytes_a_parameter_less_the_gradients_still_to_come() -> None:
    (stop,) = measure_journey(until="08")
    parts = stop.bytes_by_category
    assert parts["parameters"] == PARAMETERS_BYTES
    # Two states of 4 bytes, and beside them a counter on the GPU for each parameter, 512 B at most.
    counters = len(MODEL.parameter_shapes()) * 512
    assert 0 <= parts["optimizer states"] - 2 * PARAMETERS_BYTES <= counters
    assert stop.peak_bytes == sum(parts.values())


def test_fused_attention_keeps_no_scores() -> None:
    first, second = measure_journey(until="09")
    scores_bytes = 4 * BATCH * MODEL.heads * LENGTH**2  # 4 GiB
    # Softmax keeps its result in each of 4 layers; backward has gradients as large.
    assert first.bytes_by_category["activations"] >= MODEL.layers * scores_bytes
    assert first.bytes_by_category["temporaries"] >= 2 * scores_bytes
    assert second.bytes_by_category["temporaries"] < scores_bytes
    fewer = first.bytes_by_category["activations"] - second.bytes_by_category["activations"]
    assert fewer >= 2 * scores_bytes


def test_eight_bit_states_and_none() -> None:
    few = measure_setting(JourneySetting(1, 1, "efficient", "full", True, "8 bit"))
    # Two bytes for each parameter, and a float32 scale for each 256 numbers of each state.
    assert few["optimizer states"] == pytest.approx(PARAMETERS_BYTES / 2, rel=0.02)
    away = measure_setting(JourneySetting(1, 1, "efficient", "full", True, "on the host"))
    assert "optimizer states" not in away
    assert away.get("gradients", 0) < PARAMETERS_BYTES


def test_each_stop_keeps_what_those_before_have_changed() -> None:
    last = STOPS[-1].setting
    assert last == JourneySetting(8, 1, "efficient", "full", True, "on the host")
    assert [stop.lesson for stop in STOPS] == sorted(stop.lesson for stop in STOPS)


def test_part_two_explains_all_that_a_step_holds() -> None:
    assert explained_by("03") == set()
    assert explained_by("05") - explained_by("04") == set(EXPLAINED["05"])
    # The running model has neither buffers nor memory of no known category.
    assert set(Category) - explained_by("08") == {Category.BUFFERS, Category.OTHER}


def test_asks_for_a_lesson_that_it_goes_through() -> None:
    with pytest.raises(ValueError, match="'03': the journey begins in lesson 04"):
        measure_journey(until="03")
