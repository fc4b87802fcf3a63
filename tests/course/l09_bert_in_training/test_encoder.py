"""The encoder keeps what BERT's formula says, so what holds for one holds for the other."""

from __future__ import annotations

import pytest
import torch

from vramlab import VirtualGPU
from vramlab_course.formulas.bert import Bert
from vramlab_course.lessons.l09_bert_in_training.encoder import Encoder
from vramlab_course.lessons.l09_bert_in_training.experiment import IMPLEMENTATIONS
from vramlab_course.rules import RULES

SIZES = Bert(layers=2, width=256, heads=4, feed_forward=1024)
BATCH, LENGTH = 16, 512  # all tensors have a multiple of 2 MiB, or less than 1


def encoder(**how: float) -> Encoder:
    return Encoder(SIZES.layers, SIZES.width, SIZES.heads, SIZES.feed_forward, **how)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("attention", IMPLEMENTATIONS)
def test_a_layer_keeps_what_a_layer_of_bert_keeps(attention: str, train: bool) -> None:
    kept = SIZES.kept(BATCH, LENGTH, train=train, attention=IMPLEMENTATIONS[attention])
    with VirtualGPU("T4", torch_version=RULES):
        model = encoder().to("cuda").train(train)
        model.use_attention(attention)
        x = torch.zeros(BATCH, LENGTH, SIZES.width, device="cuda")
        model(x[:1])
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        outputs = model(x)
        growth = torch.cuda.memory_allocated() - before
        assert growth == sum(each.size_bytes for each in kept if each.place.startswith("layer"))
        assert len(outputs.hidden_states) == len(outputs.attention_weights) == 0
        del model, x, outputs


def test_no_dropout_keeps_no_mask() -> None:
    growths = []
    with VirtualGPU("T4", torch_version=RULES):
        for train in (False, True):
            model = encoder(hidden_dropout=0, attention_dropout=0).to("cuda").train(train)
            x = torch.zeros(BATCH, LENGTH, SIZES.width, device="cuda")
            model(x[:1])
            before = torch.cuda.memory_allocated()
            outputs = model(x)
            growths.append(torch.cuda.memory_allocated() - before)
            del model, x, outputs
    assert growths[0] == growths[1]


def test_both_ways_to_attend_give_the_same() -> None:
    torch.manual_seed(0)
    model = encoder().eval()
    x = torch.rand(2, 8, SIZES.width)
    eager = model(x, hidden_states=True, attention_weights=True)
    model.use_attention("sdpa")
    sdpa = model(x, hidden_states=True, attention_weights=True)
    assert torch.allclose(eager.last, sdpa.last, atol=1e-5)
    assert [len(eager.hidden_states), len(eager.attention_weights)] == [3, 2]
    assert eager.attention_weights[0].shape == (2, SIZES.heads, 8, 8)
    assert [len(sdpa.hidden_states), len(sdpa.attention_weights)] == [3, 0]
