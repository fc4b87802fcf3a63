"""Models of Hugging Face transformers: training, mixed precision, checkpointing and generate()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from vramlab.gpu import VirtualGPU

transformers = pytest.importorskip("transformers")

TINY = {"vocab_size": 64}


def bert() -> nn.Module:
    config = transformers.BertConfig(
        **TINY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    return transformers.BertForMaskedLM(config)


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(**TINY, n_embd=32, n_layer=2, n_head=2, n_positions=64)
    config.loss_type = "ForCausalLM"
    return transformers.GPT2LMHeadModel(config)


def llama() -> nn.Module:
    config = transformers.LlamaConfig(
        **TINY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return transformers.LlamaForCausalLM(config)


def t5() -> nn.Module:
    config = transformers.T5Config(
        **TINY, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config)


MODELS: dict[str, Callable[[], nn.Module]] = {"bert": bert, "gpt2": gpt2, "llama": llama, "t5": t5}


def tokens(batch: int = 2, length: int = 16) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.long, device="cuda")


every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


@every_model
def test_parameters_are_moved_once(gpu: VirtualGPU, make: Callable[[], nn.Module]) -> None:
    model = make()
    identities = [id(p) for p in model.parameters()]
    model.cuda()
    assert [id(p) for p in model.parameters()] == identities
    storages = {p.untyped_storage().data_ptr(): p for p in [*model.parameters(), *model.buffers()]}
    # tied weights are one storage; every storage is rounded to 512 B
    expected = sum(-(-p.nbytes // 512) * 512 for p in storages.values())
    assert torch.cuda.memory_allocated() == expected


@every_model
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("autocast", [False, True])
def test_training_step(
    gpu: VirtualGPU, make: Callable[[], nn.Module], autocast: bool, attention: str
) -> None:
    model = make()
    model.set_attn_implementation(attention)  # type: ignore[operator]
    model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        out: Any = model(input_ids=tokens(), labels=tokens())
    assert out.logits.shape == (2, 16, 64)
    assert out.loss.device.type == "cuda"
    out.loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    assert len(optimizer.state) > 0


def test_gradient_checkpointing_keeps_less(gpu: VirtualGPU) -> None:
    kept = []
    for checkpointing in (False, True):
        model: Any = llama().cuda().train()
        if checkpointing:
            model.activation_checkpointing_enable()
        model(input_ids=tokens(), labels=tokens()).loss.backward()  # workspaces are there now
        model.zero_grad()
        before = torch.cuda.memory_allocated()
        out = model(input_ids=tokens(8, 32), labels=tokens(8, 32))
        kept.append(torch.cuda.memory_allocated() - before)
        out.loss.backward()
        del out, model
    assert kept[1] < kept[0] / 2


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_generate(nan_gpu: VirtualGPU, name: str) -> None:
    model: Any = MODELS[name]().cuda().eval()
    with torch.no_grad():
        out = model.generate(
            tokens(2, 4),
            attention_mask=torch.ones_like(tokens(2, 4)),
            max_new_tokens=5,
            min_new_tokens=5,
            do_sample=False,
            pad_token_id=0,
        )
    assert out.device.type == "cuda"
    assert out.shape[0] == 2
    assert out.shape[1] in (6, 9)  # 5 new ones after the start token or after the prompt of 4


def test_the_key_value_cache_is_counted(gpu: VirtualGPU) -> None:
    model: Any = llama().cuda().eval()
    with torch.no_grad():
        model(input_ids=tokens(2, 8), use_cache=False)  # workspaces are there now
        before = torch.cuda.memory_allocated()
        out = model(input_ids=tokens(2, 8), use_cache=True)
        logits_bytes = out.logits.untyped_storage().nbytes()
        cache_bytes = torch.cuda.memory_allocated() - before - logits_bytes
    # keys and values, 2 layers: batch 2 x 2 heads x 8 tokens x head size 8 x 4 B = 1024 B each
    assert cache_bytes == 2 * 2 * 1024
    del out
