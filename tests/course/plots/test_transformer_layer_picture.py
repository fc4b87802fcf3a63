"""A transformer layer is drawn with all that it saves, in proportion, and both residuals."""

from __future__ import annotations

import pytest
import torch
from matplotlib.patches import Rectangle

from vramlab import VirtualGPU
from vramlab.measure import saved_by
from vramlab.measure.saved_tensors import SavedTensors
from vramlab.programs.transformer import DROPOUT, TransformerLayer
from vramlab.programs.transformer_memory import Attention, Sizes
from vramlab_course.plots import draw_layer
from vramlab_course.plots.transformer_layer import BAR_IN, LONGEST_IN, layer_kept

SIZES = Sizes(width=256, heads=4)
BATCH, LENGTH = 2, 128
HIDDEN_BYTES = BATCH * LENGTH * 256 * 2


def saved_by_layer(attention: Attention, *, dropout: float = DROPOUT) -> SavedTensors:
    """What one layer in bfloat16 saves."""
    with VirtualGPU("A100-40GB"), torch.device("cuda"):
        layer = TransformerLayer(SIZES, dropout, attention, selective=False).bfloat16()
        x = torch.zeros(BATCH, LENGTH, 256, dtype=torch.bfloat16, requires_grad=True)
        return saved_by(lambda: layer(x, mask=None), model=layer, inputs=x)


def saved_by_bert(attention: str) -> SavedTensors:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=256,
        num_attention_heads=4,
        intermediate_size=1024,
        num_hidden_layers=1,
        attn_implementation=attention,
    )
    with VirtualGPU("A100-40GB"):
        layer = BertModel(config).encoder.layer[0].to("cuda").train()
        x = torch.zeros(BATCH, LENGTH, 256, device="cuda", requires_grad=True)
        return saved_by(lambda: layer(x), model=layer, inputs=x)


@pytest.mark.parametrize("attention", ["eager", "flash"])
def test_every_saved_byte_has_its_place(attention: Attention) -> None:
    saved = saved_by_layer(attention)
    kept = layer_kept(saved)
    assert kept.kept_bytes == saved.kept_bytes + HIDDEN_BYTES
    assert kept.norm_first
    assert kept.kernel == ("" if attention == "eager" else "flash")
    # arXiv 2205.05198: 34 bytes for each number of the hidden state, 5 for each pair in each head;
    # and two norms with two float32 numbers a token.
    numbers, pairs = BATCH * LENGTH * 256, BATCH * 4 * LENGTH**2
    statistics_bytes = 2 * 2 * 4 * BATCH * LENGTH
    if attention == "eager":
        assert kept.kept_bytes == 34 * numbers + 5 * pairs + statistics_bytes


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_layer_of_transformers_is_known(attention: str) -> None:
    saved = saved_by_bert(attention)
    kept = layer_kept(saved)
    assert kept.kept_bytes == saved.kept_bytes + 2 * HIDDEN_BYTES  # float32
    assert not kept.norm_first
    assert ("softmax" in kept.parts) == (attention == "eager")
    assert kept.parts["GELU input"] == 4 * 2 * HIDDEN_BYTES


def test_bars_are_in_proportion_to_bytes() -> None:
    saved = saved_by_layer("eager")
    parts = layer_kept(saved).parts
    picture = draw_layer(saved)
    bars = [patch for patch in picture.axes[0].patches if isinstance(patch, Rectangle)]
    assert {bar.get_height() for bar in bars} == {BAR_IN}
    widths = sorted(bar.get_width() for bar in bars)
    largest = max(parts.values())
    assert widths == pytest.approx(sorted(LONGEST_IN * size / largest for size in parts.values()))
    # The same bytes are half as long beside a tensor of twice the size.
    scaled = draw_layer(saved, longest_bytes=2 * largest).axes[0].patches
    halves = sorted(patch.get_width() for patch in scaled if isinstance(patch, Rectangle))
    assert halves == pytest.approx([width / 2 for width in widths])


def test_a_checkpointed_layer_fills_its_input_only() -> None:
    picture = draw_layer(saved_by_layer("flash"), recomputed=True)
    bars = [patch for patch in picture.axes[0].patches if isinstance(patch, Rectangle)]
    filled = [bar.get_width() for bar in bars if bar.get_fill()]
    # GELU's input is the longest, four times the hidden state.
    assert filled == [pytest.approx(LONGEST_IN / 4)]
    assert "A checkpointed layer keeps its input" in picture.alt
