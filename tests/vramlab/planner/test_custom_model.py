"""Plans for models of anybody's: extended, and run with all layers; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from vramlab.cli import main
from vramlab.planner import Plan, UnsupportedPlan, estimate, simulate
from vramlab.planner.custom import Input, UnusableModel
from vramlab.planner.layers import LayerList, layer_lists
from vramlab.planner.models import UnknownModel
from vramlab.planner.sources import custom_model, transformers_model

pytestmark = pytest.mark.long

NET = """
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return x + self.norm(self.convolution(x)).relu()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 4, 4)
        self.blocks = nn.Sequential(*(Block(16) for _ in range(9)))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))

class Counted(Net):
    def forward(self, x):
        x = self.stem(x)
        for number in range(9):
            x = self.blocks[number](x)
        return self.head(x.mean((2, 3)))

def number():
    return 3
"""
IMAGES = {"inputs": ["float32[B,3,32,32]"], "target": "int64[B]", "loss": "cross_entropy"}
SMALL = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128}
WORDS = {**SMALL, "vocab_size": 512, "num_hidden_layers": 8}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**WORDS, "num_key_value_heads": 2},
    "qwen3_moe": {**WORDS, "num_key_value_heads": 2, "head_dim": 32, "num_experts": 4}
    | {"num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "bert": WORDS,
    "vit": {**SMALL, "num_hidden_layers": 7, "image_size": 32, "patch_size": 8},
    # Two lists of layers, of different lengths.
    "t5": {"d_model": 64, "d_kv": 32, "num_heads": 2, "d_ff": 128, "vocab_size": 512}
    | {"num_layers": 8, "num_decoder_layers": 9},
}


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net_of_test.py"
    path.write_text(NET)
    return path


def config(folder: Path, kind: str) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": kind, **CONFIGS[kind]}))
    return folder


def assert_exact(plan: Plan, how: str) -> None:
    found, measured = estimate(plan), simulate(plan)
    assert how in found.how
    assert found.peak_bytes == measured.peak_bytes
    assert found.bytes_by_category == measured.bytes_by_category


@pytest.mark.parametrize("kind", CONFIGS)
def test_configurations_of_transformers_to_the_byte(kind: str, tmp_path: Path) -> None:
    model = transformers_model(config(tmp_path, kind))
    assert_exact(Plan(model, batch=2, sequence=32), "layers and more, and extended to")


@pytest.mark.parametrize(
    "options",
    [
        {"checkpointing": "full", "precision": "float32"},
        {"data": 2, "zero": 3, "precision": "bfloat16, float32 master"},
        {"micro_batch": 2, "precision": "pure bfloat16", "implementation": "fused"},
    ],
    ids=["checkpointing", "ZeRO-3", "micro-batches"],
)
def test_a_module_of_ones_own_to_the_byte(net: Path, options: dict[str, Any]) -> None:
    plan = Plan(custom_model(f"{net}:Net", **IMAGES), batch=8, **options)
    assert_exact(plan, "layers and more, and extended to 9")


def test_what_does_not_run_with_fewer_layers_is_run_with_all(net: Path) -> None:
    plan = Plan(custom_model(f"{net}:Counted", **IMAGES), batch=4)
    assert_exact(plan, "run with all layers: it does not run with fewer of its layers")


def test_the_command_plans_it(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--input", IMAGES["inputs"][0], "--target", "int64[B]", "--loss", "cross_entropy"]
    assert main(["plan", f"{net}:Net", *words, "--batch", "4", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    plan = Plan(custom_model(f"{net}:Net", **IMAGES), batch=4)
    assert shown["estimate"]["peak_bytes"] == estimate(plan).peak_bytes
    assert shown["plan"]["inputs"] == ["float32[B,3,32,32]"]
    assert main(["plan", f"{net}:Net", *words, "--attention", "flash"]) == 2
    assert "--attention works only with the built-in transformer" in capsys.readouterr().err


# ---- Lists of layers ----


class Numbered(nn.Module):
    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.linear = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


@pytest.mark.parametrize(
    ("kinds", "first", "period"),
    [
        ("aaaaaa", 0, 1),
        ("baaaaa", 1, 1),  # the first layer is another one
        ("abababab", 0, 2),
        ("cabababab", 1, 2),
        ("aabaabaab", 0, 3),
        ("ababababa", 1, 2),  # one layer is left over
    ],
)
def test_patterns_of_layers(kinds: str, first: int, period: int) -> None:
    model = nn.Sequential(nn.ModuleList(Numbered(4, kind) for kind in kinds), nn.Linear(4, 4))
    assert layer_lists(model, 0) == [LayerList("0", len(kinds), first, period)]


# ---- What is refused ----


@pytest.mark.parametrize("text", ["float32", "floaty[B]", "float32[Q]", "float32[0]", "x=[B]"])
def test_inputs_that_describe_no_tensor(text: str) -> None:
    with pytest.raises(UnusableModel, match="invalid tensor"):
        Input(text)


@pytest.mark.parametrize(
    ("function", "changes", "message"),
    [
        ("nothing", {}, "has no function 'nothing'; its functions: Block, Net, Counted, number"),
        ("Net", {"inputs": []}, "missing --input"),
        ("Net", {"loss": None}, "needs --loss"),
        ("Net", {"loss": "nope"}, "torch.nn.functional has no 'nope'"),
        ("number", {}, "returned a int; it must return a torch.nn.Module"),
        ("Net", {"inputs": ["float32[B,4,32,32]"]}, "cannot be trained: RuntimeError: Given"),
        ("Net", {"loss": None, "target": None}, r"a tensor of shape \(8, 10\), and no loss"),
    ],
)
def test_models_that_cannot_be_used(
    net: Path, function: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnusableModel, match=message):
        estimate(Plan(custom_model(f"{net}:{function}", **{**IMAGES, **changes}), batch=8))


def test_a_custom_model_is_not_cut(net: Path) -> None:
    with pytest.raises(UnsupportedPlan, match="tensor and pipeline parallelism work only with"):
        Plan(custom_model(f"{net}:Net", **IMAGES), tensor=2)


def test_configurations_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match="can't open "):
        transformers_model(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UnusableModel, match='has no "model_type", so it is not'):
        transformers_model(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "no such"}')
    with pytest.raises(UnusableModel, match="does not know the model type 'no such'"):
        transformers_model(tmp_path)
