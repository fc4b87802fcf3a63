"""A step with adapters: what is measured with two layers and three is that of all of them."""

from __future__ import annotations

import pytest

from vramlab.planner.models import llama_sizes
from vramlab_course.lessons.l24_lora_and_qlora import experiment as adapters
from vramlab_course.lessons.l24_lora_and_qlora.experiment import ALL_MATRICES, WAYS, TuningWay
from vramlab_course.lessons.l24_lora_and_qlora.formulas import chain_kept_bytes, llama_parameters

SMALL = llama_sizes(512, 256, 4, 4, 768)


@pytest.mark.parametrize("name", ["all weights learn", "QLoRA, checkpoints"])
def test_other_layers_repeat_the_difference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extended = adapters.step_peak(WAYS[name], SMALL, 128)
    left = adapters.left_by_forward(WAYS[name], SMALL, 128)
    monkeypatch.setattr(adapters, "of_all_layers", lambda measure, sizes: measure(sizes))
    assert adapters.step_peak(WAYS[name], SMALL, 128) == extended
    assert adapters.left_by_forward(WAYS[name], SMALL, 128) == left


def test_weights_turned_back_are_kept_where_autograd_is_left_alone() -> None:
    way = TuningWay(ALL_MATRICES, four_bits=True)
    trapped = TuningWay(ALL_MATRICES, four_bits=True, keeps_weight=True)
    more = adapters.left_by_forward(trapped, SMALL, 128) - adapters.left_by_forward(way, SMALL, 128)
    # Of four layers: qkv 3 x 256 x 256, project 256 x 256, up 2 x 768 x 256, down 768 x 256, 2 B;
    # not of the first qkv, whose input wants no gradient.
    assert more == 2 * 256 * (4 * (3 * 256 + 256 + 2 * 768 + 768) - 3 * 256)


def test_llamas_have_as_many_parameters_as_their_names_say() -> None:
    assert llama_parameters(*adapters.LLAMAS["7B"]) == 6_738_415_616
    assert llama_parameters(*adapters.LLAMAS["65B"]) == 65_285_660_672


def test_a_chain_of_frozen_layers_keeps_nothing() -> None:
    assert chain_kept_bytes(["frozen", "frozen"], 128, 64) == 0
