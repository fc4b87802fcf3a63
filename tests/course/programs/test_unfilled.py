"""Weights without random numbers: the model and its memory are the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForPreTraining

import vramlab
from vramlab_course.programs.unfilled import UnfilledWeights

SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2}


def tied_bert() -> nn.Module:
    """A BERT whose head has the embedding's weight."""
    model: nn.Module = BertForPreTraining(BertConfig.from_dict({**SMALL, "vocab_size": 300}))
    return model


def several_layers() -> nn.Module:
    """Layers that are filled in each of PyTorch's ways."""
    chain = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 8), nn.Bilinear(8, 8, 8))
    chain.append(nn.Conv2d(3, 4, 3)).append(nn.LSTM(8, 8)).append(nn.MultiheadAttention(8, 2))
    for fill in (nn.init.kaiming_normal_, nn.init.xavier_normal_, nn.init.trunc_normal_):
        fill(chain.append(nn.Linear(8, 8))[-1].weight)
    return chain


MODELS: tuple[Callable[[], nn.Module], ...] = (tied_bert, several_layers)


@pytest.mark.parametrize("make", MODELS)
def test_no_number_is_drawn_on_the_host(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with UnfilledWeights():
        make()
    assert torch.equal(torch.get_rng_state(), before)
    make()
    assert not torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("make", MODELS)
def test_moved_to_a_gpu_it_allocates_the_same(make: Callable[[], nn.Module]) -> None:
    events = []
    for is_filled in (True, False):
        with vramlab.VirtualGPU("T4"):
            if is_filled:
                model = make()
            else:
                with UnfilledWeights():
                    model = make()
            torch.cuda.memory._record_memory_history()
            model.to("cuda")
            trace = torch.cuda.memory._snapshot()["device_traces"][0]
            torch.cuda.memory._record_memory_history(enabled=None)
            events.append([(each["action"], each["size"], each["addr"]) for each in trace])
            del model
    assert events[0] == events[1]
    assert any(action == "alloc" for action, *_ in events[0])


def test_ties_and_what_is_set_to_a_constant_are_kept() -> None:
    with UnfilledWeights():
        model = tied_bert()
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert torch.equal(model.bert.embeddings.position_ids, torch.arange(512)[None])
    layer = model.bert.encoder.layer[0]
    assert torch.equal(layer.output.LayerNorm.weight, torch.ones(64))
    assert torch.equal(layer.output.dense.bias, torch.zeros(64))


def test_on_a_gpu_weights_are_filled() -> None:
    with vramlab.VirtualGPU("T4", values=True), UnfilledWeights():
        weight = torch.full((1000,), 7.0, device="cuda")
        nn.init.uniform_(weight)  # from 0 to 1
        assert not weight.eq(7).any()
