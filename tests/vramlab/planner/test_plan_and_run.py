"""A plan, and the training script that it stands for, run on an attached GPU: the same peak.

Both say `torch.cuda.max_memory_allocated()`, unsplit remainders included.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vramlab import VirtualGPU
from vramlab.catalogue import GPUModel
from vramlab.planner import Plan, estimate, find_model
from vramlab.planner.events import REMAINDERS
from vramlab.planner.sources import transformers_model

pytestmark = pytest.mark.long

GPU = "A100-40GB"
WORDS = {"vocab_size": 3000, "hidden_size": 192, "num_attention_heads": 4}
WORDS |= {"intermediate_size": 520, "num_hidden_layers": 3}
GROUPED = {"num_key_value_heads": 2, "sliding_window": None}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 192, "n_layer": 3, "n_head": 4, "vocab_size": 3000, "n_positions": 256},
    "llama": WORDS,
    "mistral": WORDS | GROUPED,
    "bert": WORDS,
    "vit": {**WORDS, "image_size": 96, "patch_size": 16},
    # One embedding for three modules: it is allocated once.
    "t5": {"d_model": 192, "d_kv": 48, "num_heads": 4, "d_ff": 520, "vocab_size": 3000}
    | {"num_layers": 3},
    "resnet": {"embedding_size": 32, "hidden_sizes": [32, 64, 128, 256], "depths": [2, 2, 2, 2]}
    | {"layer_type": "basic"},
    "mixtral": WORDS | GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2},
}
MEDIUM: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 768, "n_layer": 12, "n_head": 12},
    "llama": {"hidden_size": 1024, "num_hidden_layers": 9, "intermediate_size": 2816},
    "mistral": {"hidden_size": 1024, "num_hidden_layers": 8, "intermediate_size": 3584},
    "bert": {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072},
    "vit": {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072},
    "t5": {"d_model": 512, "num_layers": 8, "d_ff": 2048, "vocab_size": 32128},
    "resnet": {"depths": [3, 4, 23, 3], "hidden_sizes": [256, 512, 1024, 2048]}
    | {"layer_type": "bottleneck", "embedding_size": 64},
    "mixtral": {"hidden_size": 512, "num_hidden_layers": 8, "intermediate_size": 1792},
}
TRAININGS: dict[str, dict[str, Any]] = {
    "autocast": {"precision": "autocast bfloat16"},
    "float32, loop": {"precision": "float32", "implementation": "loop"},
    "float32, fused, checkpoints": {"precision": "float32", "implementation": "fused"}
    | {"checkpointing": "full"},
    "pure bfloat16, SGD": {"precision": "pure bfloat16", "optimizer": "sgd"},
    "autocast, momentum, checkpoints": {"precision": "autocast bfloat16"}
    | {"optimizer": "sgd with momentum", "checkpointing": "full"},
    "accumulation": {"precision": "autocast bfloat16", "micro_batch": 1},
}

SCRIPT = """
import json
import torch
import transformers

config = transformers.AutoConfig.for_model(**json.loads({config!r}))
config.use_cache = False
if config.is_encoder_decoder:
    config.decoder_start_token_id = 0
model = transformers.{kind}(config).to({weights}).cuda().train()
if {checkpoints}:  # by its name since transformers 5, or by the one before
    (getattr(model, "activation_checkpointing_enable", 0) or model.gradient_checkpointing_enable)()
optimizer = {optimizer}
batch = {{name: tensor.cuda() for name, tensor in {inputs}.items()}}
for step in range(5):
    for start in range(0, {batch}, {at_a_time}):
        part = {{name: tensor[start : start + {at_a_time}] for name, tensor in batch.items()}}
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled={autocast}):
            loss = model(**part).loss
        if {parts} > 1:
            loss = loss / {parts}
        loss.backward()
        del loss
    optimizer.step()
    optimizer.zero_grad()
peak_bytes = torch.cuda.max_memory_allocated()
print(peak_bytes)
"""
KINDS = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "bert": "BertForMaskedLM",
    "vit": "ViTForImageClassification",
    "t5": "T5ForConditionalGeneration",
    "resnet": "ResNetForImageClassification",
    "mixtral": "MixtralForCausalLM",
}
OPTIMIZERS = {
    "adamw": "torch.optim.AdamW(model.parameters(), {ways})",
    "sgd": "torch.optim.SGD(model.parameters(), lr=1e-3, {ways})",
    "sgd with momentum": "torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, {ways})",
}
WAYS = {"foreach": "foreach=True", "fused": "fused=True", "loop": "foreach=False"}


def script_of(plan: Plan, config: dict[str, Any]) -> str:
    """Write the training that a plan describes, as a program would have it."""
    kind, dtype = config["model_type"], "torch.float32"
    if plan.precision == "pure bfloat16":
        dtype = "torch.bfloat16"
    size, labels = config.get("image_size", 224), f"torch.zeros({plan.batch}, dtype=torch.long)"
    inputs = (
        f"{{'pixel_values': torch.zeros({plan.batch}, 3, {size}, {size}, dtype={dtype}), "
        f"'labels': {labels}}}"
    )
    if kind not in ("vit", "resnet"):
        shape = f"torch.zeros({plan.batch}, {plan.sequence}, dtype=torch.long)"
        inputs = f"{{'input_ids': {shape}, 'labels': {shape}}}"
    return SCRIPT.format(
        config=json.dumps(config),
        kind=KINDS[kind],
        weights=dtype,
        checkpoints=plan.checkpointing == "full",
        optimizer=OPTIMIZERS[plan.optimizer].format(ways=WAYS[plan.implementation]),
        inputs=inputs,
        batch=plan.batch,
        at_a_time=plan.at_a_time,
        parts=plan.micro_batches,
        autocast=plan.precision.startswith("autocast"),
    )


def plan_of(folder: Path, config: dict[str, Any], options: dict[str, Any]) -> Plan:
    (folder / "config.json").write_text(json.dumps(config))
    return Plan(transformers_model(folder), GPU, batch=4, sequence=96, **options)


def run_attached(folder: Path, text: str) -> int:
    """Run a script on an attached GPU; its peak."""
    path = folder / "train.py"
    path.write_text(text)
    with VirtualGPU(GPU, on_value="nan", host_values_below_bytes=2**16):
        peak_bytes: int = runpy.run_path(str(path))["peak_bytes"]
    return peak_bytes


def assert_the_same(folder: Path, config: dict[str, Any], options: dict[str, Any]) -> None:
    plan = plan_of(folder, config, options)
    found = estimate(plan)
    assert sum(found.bytes_by_category.values()) == found.peak_bytes
    assert found.peak_bytes == run_attached(folder, script_of(plan, config))


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_plan_is_what_its_script_takes(kind: str, training: str, tmp_path: Path) -> None:
    options = TRAININGS[training]
    if kind == "resnet" and "checkpointing" in options:
        pytest.skip("transformers has no checkpoints for ResNet")
    assert_the_same(tmp_path, {"model_type": kind, **CONFIGS[kind]}, options)


@pytest.mark.parametrize("training", ["autocast", "float32, fused, checkpoints"])
@pytest.mark.parametrize("kind", MEDIUM)
def test_a_plan_of_many_layers_too(kind: str, training: str, tmp_path: Path) -> None:
    options = TRAININGS[training]
    if kind == "resnet" and "checkpointing" in options:
        pytest.skip("transformers has no checkpoints for ResNet")
    assert_the_same(tmp_path, {"model_type": kind, **CONFIGS[kind], **MEDIUM[kind]}, options)


def test_the_commands_agree(tmp_path: Path) -> None:
    # 3,072 words by 192 in float32 are 2.25 MiB: nothing is split off the rest of a free block.
    config = {"model_type": "gpt2", **CONFIGS["gpt2"], "vocab_size": 3072}
    plan = plan_of(tmp_path, config, {"precision": "float32"})
    (tmp_path / "train.py").write_text(script_of(plan, config))
    words = ["--gpu", GPU, "--batch", "4", "--sequence", "96", "--precision", "float32", "--json"]
    planned = json.loads(_vramlab("plan", str(tmp_path), *words))["estimate"]
    report = tmp_path / "report.json"
    words = [
        "--gpu",
        GPU,
        "--engine",
        "portable",
        "--json",
        str(report),
        str(tmp_path / "train.py"),
    ]
    _vramlab("run", *words)
    (device,) = json.loads(report.read_text())["devices"]
    assert planned["peak_bytes"] == device["peak_allocated_bytes"]
    assert planned["bytes_by_category"][REMAINDERS] > 0


def _vramlab(*words: str) -> str:
    command = [sys.executable, "-m", "vramlab", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_plan_fits_where_its_allocator_finds_room() -> None:
    plan = Plan(find_model("gpt2"), "A100-40GB", batch=8)
    needed = estimate(plan)
    context_bytes = plan.model.context_bytes
    large = plan.but(gpu=_with_memory(plan, 11 * 2**30 + context_bytes))
    assert estimate(large).fits
    assert estimate(large).peak_bytes == needed.peak_bytes
    # All blocks would fit, but not into segments of 2 MiB and more, with gaps between them.
    narrow = plan.but(gpu=_with_memory(plan, needed.peak_bytes + context_bytes))
    assert not estimate(narrow).fits
    assert estimate(narrow).peak_bytes == needed.peak_bytes


def _with_memory(plan: Plan, total_bytes: int) -> GPUModel:
    return replace(plan.model, total_bytes=total_bytes)
