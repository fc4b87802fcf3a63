"""Lesson 07: what inference holds, mode by mode, and what a cache of keys and values takes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.bert import Bert
from vramlab_course.formulas.kv_cache import KVCache
from vramlab_course.lessons.l07_inference.formulas import bert_peak_bytes


@dataclass(frozen=True)
class Mode:
    """One way to run a forward pass."""

    name: str
    training: bool
    """What model.train() is given."""
    context: Callable[[], AbstractContextManager[object]]
    """Under which it runs."""
    keeps: bool
    """Whether autograd keeps activations there."""


MODES = (
    Mode("train()", True, nullcontext, True),
    Mode("eval()", False, nullcontext, True),
    Mode("eval() and no_grad()", False, torch.no_grad, False),
    Mode("eval() and inference_mode()", False, torch.inference_mode, False),
)


@experiment(
    "inference-modes",
    lesson="07",
    question="What does a forward pass of BERT-base leave behind, and what is its peak?",
    source="001 §2.41 and §2.42",
)
def inference_modes(batch: int = 32, sequence: int = 512) -> Outcome:
    """Run the same forward pass of BERT-base in four modes: with and without dropout, and autograd.

    Args:
        batch, sequence: of the tokens; from 384 tokens on, attention decides the peak.
    """
    trial = Trial("inference-modes", batch=batch, sequence=sequence)
    sizes = Bert()
    with torch.device("cuda"):
        model = bert_base()
    tokens = torch.zeros((batch, sequence), dtype=torch.long, device="cuda")
    with torch.no_grad():
        model(tokens)  # cuBLAS has its workspace from here on
    torch.cuda.empty_cache()
    for mode in MODES:
        model.train(mode.training)
        kept_bytes = (
            sizes.forward_bytes(batch, sequence, train=mode.training)
            if mode.keeps
            else sizes.output_bytes(batch, sequence)
        )
        before_bytes = torch.cuda.memory_allocated()
        with trial.stage(mode.name, expected("growth", kept_bytes)) as stage, mode.context():
            outputs = model(tokens)
        if not mode.keeps:
            peak_bytes = before_bytes + bert_peak_bytes(sizes, batch, sequence)
            stage.expect(expected("peak", peak_bytes))
        del outputs
        torch.cuda.empty_cache()
    return trial.outcome()


def bert_base() -> nn.Module:
    """Make BERT-base from its configuration, with attention step by step; nothing is downloaded."""
    from transformers import BertConfig, BertModel

    model: nn.Module = BertModel(BertConfig.from_dict({"attn_implementation": "eager"}))
    return model


@dataclass(frozen=True)
class GeneratingModel:
    """A model that generates, and the sizes of its cache."""

    name: str
    make: Callable[[], nn.Module]
    cache: KVCache


def gpt2_like() -> GeneratingModel:
    """Make GPT-2's smallest size, in float32: every query head has keys and values of its own."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config()
    cache = KVCache(config.n_layer, config.n_head, config.n_embd // config.n_head, dtype="float32")
    return GeneratingModel("GPT-2", lambda: GPT2LMHeadModel(config), cache)


def llama_like() -> GeneratingModel:
    """Return a small Llama in float16, whose 32 query heads share 8 key-value heads."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=2048,
        intermediate_size=4096,
        num_hidden_layers=4,
        num_attention_heads=32,
        num_key_value_heads=8,
    )
    cache = KVCache(4, 8, 2048 // 32, dtype="float16")
    return GeneratingModel("Llama", lambda: LlamaForCausalLM(config), cache)


@experiment(
    "kv-cache",
    lesson="07",
    question="How does the cache of keys and values grow while a model generates?",
    source="001 §2.26",
)
def kv_cache(prompt: int = 100, new_tokens: int = 8, beams: int = 4) -> Outcome:
    """Generate with GPT-2 and with a Llama that has grouped heads, then with beams.

    Args:
        prompt: tokens that are read at once.
        new_tokens: that are then generated, one at a time.
        beams: sequences for one prompt, whose caches are reordered once.
    """
    trial = Trial("kv-cache", prompt=prompt, new_tokens=new_tokens, beams=beams)
    for generator in (gpt2_like(), llama_like()):
        with torch.device("cuda"):
            model = generator.make().eval().to(getattr(torch, generator.cache.dtype))
        with torch.no_grad():
            model(_tokens(1, 1), use_cache=False)  # cuBLAS has its workspace from here on
            _measure_growth(trial, generator, model, prompt, new_tokens)
            _measure_beams(trial, generator, model, prompt, beams)
        del model
        torch.cuda.empty_cache()
    return trial.outcome()


def _tokens(sequences: int, length: int) -> torch.Tensor:
    return torch.zeros((sequences, length), dtype=torch.long, device="cuda")


def _measure_growth(
    trial: Trial, generator: GeneratingModel, model: nn.Module, prompt: int, new_tokens: int
) -> None:
    from transformers import DynamicCache

    sizes, name = generator.cache, generator.name
    cache = DynamicCache()
    with trial.stage(f"{name}: prompt", expected("growth", sizes.held_bytes(prompt))):
        model(_tokens(1, prompt), past_key_values=cache)
    first_bytes = sizes.held_bytes(prompt + 1) - sizes.held_bytes(prompt)
    with trial.stage(f"{name}: one token", expected("growth", first_bytes)):
        model(_tokens(1, 1), past_key_values=cache)
    more_bytes = sizes.held_bytes(prompt + new_tokens) - sizes.held_bytes(prompt + 1)
    with trial.stage(f"{name}: {new_tokens - 1} more", expected("growth", more_bytes)):
        for _ in range(new_tokens - 1):
            model(_tokens(1, 1), past_key_values=cache)


def _measure_beams(
    trial: Trial, generator: GeneratingModel, model: nn.Module, prompt: int, beams: int
) -> None:
    from transformers import DynamicCache

    sizes, name = with_sequences(generator.cache, beams), generator.name
    cache: Any = DynamicCache()
    remainder_bytes = unsplit_remainder_bytes()
    with trial.stage(f"{name}: prompt, {beams} beams") as read:
        model(_tokens(beams, prompt), past_key_values=cache)
    # Tensors of more than 1 MiB can come with unsplit remainders: they are read from the snapshot.
    grown_bytes = unsplit_remainder_bytes() - remainder_bytes
    read.expect(expected("growth", sizes.held_bytes(prompt) + grown_bytes))
    order = torch.zeros(beams, dtype=torch.long, device="cuda")
    before_bytes, remainder_bytes = torch.cuda.memory_allocated(), unsplit_remainder_bytes()
    held_bytes = sizes.held_bytes(prompt)
    peak_bytes = before_bytes - held_bytes + sizes.reorder_peak_bytes(prompt)
    with trial.stage(f"{name}: reorder the beams", expected("peak", peak_bytes)) as reorder:
        cache.reorder_cache(order)
    reorder.expect(expected("growth", unsplit_remainder_bytes() - remainder_bytes))


def with_sequences(cache: KVCache, sequences: int) -> KVCache:
    """Return the same cache for another number of sequences."""
    return KVCache(cache.layers, cache.kv_heads, cache.head_size, sequences, cache.dtype)
