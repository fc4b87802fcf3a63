"""Plans as scripts and configurations of libraries, and what these take when they run."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from vramlab import VirtualGPU
from vramlab.cli import main
from vramlab.commands.plan import LIBRARIES
from vramlab.planner import Plan, UnsupportedPlan, estimate, find_model
from vramlab.planner.models import llama_sizes
from vramlab.planner.settings_for import WRITERS, settings_for, write
from vramlab.planner.sources import custom_model, transformers_model
from vramlab.planner.written_script import program_of
from vramlab.programs import model_changes
from vramlab.programs.alone import alone
from vramlab.programs.transformer_memory import Sizes

pytestmark = pytest.mark.long

GPU = "A100-40GB"
LLAMA = llama_sizes(3000, 192, 2, 4, 520, 2)
GPT2 = Sizes(3000, 256, 192, 2, 4)
SHARDED: dict[str, Any] = {"data": 4, "batch": 8, "zero": 3}
MASTER: dict[str, Any] = {"precision": "bfloat16, float32 master"}
SCRIPTS: dict[str, tuple[Sizes, dict[str, Any]]] = {
    "autocast": (GPT2, {}),
    "efficient": (LLAMA, {"precision": "float32", "attention": "efficient"}),
    "selective": (LLAMA, {"attention": "eager", "checkpointing": "selective"}),
    "every second layer": (LLAMA, {"checkpointing": "full", "checkpoint_every": 2}),
    "loss in chunks": (GPT2, {"loss_chunks": 4, "micro_batch": 2, "implementation": "loop"}),
    "adapters": (LLAMA, {"adapter_rank": 8, "precision": "pure bfloat16"}),
    "master weights": (LLAMA, MASTER),
    "offloaded": (LLAMA, {"offload": "both", "optimizer": "sgd with momentum"}),
    "DDP": (GPT2, {"data": 2, "batch": 8, "micro_batch": 1}),
    "ZeRO-1": (LLAMA, {"data": 2, "zero": 1, "implementation": "fused"}),
    "ZeRO-2": (LLAMA, SHARDED | {"zero": 2}),
    "ZeRO-3": (GPT2, SHARDED | {"micro_batch": 1}),
    "ZeRO-3, offloaded": (
        LLAMA,
        SHARDED | MASTER | {"offload": "optimizer", "checkpointing": "full", "loss_chunks": 4},
    ),
}


def plan_of(sizes: Any = LLAMA, **options: Any) -> Plan:
    return Plan(sizes, GPU, **{"batch": 4, "sequence": 96, **options})


def peak_of_script(folder: Path, text: str, ranks: int) -> int:
    """Run a script as the first of these ranks, without the others; its peak."""
    path = folder / "train.py"
    path.write_text(text)
    gpu = VirtualGPU(GPU, on_value="nan", host_values_below_bytes=2**16)
    with gpu, alone(ranks) if ranks > 1 else nullcontext():
        runpy.run_path(str(path))
        return torch.cuda.max_memory_allocated()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_takes_what_is_planned_for_it(name: str, tmp_path: Path) -> None:
    sizes, options = SCRIPTS[name]
    settings = settings_for(plan_of(sizes, **options), "fsdp2")
    assert "vramlab" not in settings.text
    peak_bytes = peak_of_script(tmp_path, settings.text, settings.asked.data)
    assert peak_bytes == estimate(settings.plan).peak_bytes


def test_a_script_of_a_config_json(tmp_path: Path) -> None:
    config = {"model_type": "t5", "d_model": 192, "d_kv": 48, "num_heads": 4, "d_ff": 520}
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 3000}))
    plan = plan_of(transformers_model(tmp_path), checkpointing="full")
    settings = settings_for(plan, "fsdp2")
    peak_bytes = peak_of_script(tmp_path, settings.text, 1)
    assert peak_bytes == estimate(settings.plan).peak_bytes == estimate(plan).peak_bytes


def test_a_script_of_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))"
    (tmp_path / "small_net.py").write_text(
        f"from torch import nn\n\n\ndef build():\n    return {code}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    model = custom_model("small_net:build", ["float32[B,256]"], "int64[B]", "cross_entropy")
    plan = plan_of(model, batch=64, micro_batch=16, checkpointing="full")
    settings = settings_for(plan, "fsdp2")
    assert peak_of_script(tmp_path, settings.text, 1) == estimate(settings.plan).peak_bytes


@pytest.mark.parametrize(
    "change",
    [
        "change_attention(model, SDPBackend.MATH, recomputed=True)",
        "add_adapters(model, model.model.layers, 4)",
        "recompute_layers(model.model.layers, every=2)",
        "compute_loss_in_chunks(model, 4)",
    ],
)
def test_what_saves_memory_leaves_loss_and_gradients_as_they_are(change: str) -> None:
    losses, norms = [], []
    for each in ("", change):
        torch.manual_seed(0)
        names: dict[str, Any] = {"transformers": transformers, **vars(model_changes)}
        exec("\n".join(program_of(plan_of()).model), names)
        exec(each, names)
        tokens = torch.arange(192).reshape(2, 96)
        loss = names["model"](input_ids=tokens, labels=tokens)["loss"]
        loss.backward()
        # The adapters' own gradients aside, those of the embedding are what all layers passed back.
        weight = names["model"].get_input_embeddings().weight
        losses.append(loss.item())
        norms.append(0.0 if weight.grad is None else weight.grad.norm().item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert norms[1] == pytest.approx(norms[0], rel=1e-4) or "adapters" in change


CHANGES: dict[str, dict[str, Any]] = {
    "batch": {"batch": 8},
    "micro_batch": {"micro_batch": 1},
    "sequence": {"sequence": 64},
    "precision": {"precision": "pure bfloat16"},
    "optimizer": {"optimizer": "sgd"},
    "implementation": {"implementation": "loop"},
    "attention": {"attention": "math"},
    "dropout": {"dropout": True},
    "checkpointing": {"checkpointing": "full"},
    "checkpoint_every": {"checkpointing": "full", "checkpoint_every": 2},
    "selective": {"checkpointing": "selective"},
    "loss_chunks": {"loss_chunks": 4},
    "adapter_rank": {"adapter_rank": 8},
    "offload optimizer": {"offload": "optimizer"},
    "offload activations": {"offload": "activations"},
    "DDP": {"data": 2},
    "ZeRO-1": {"data": 2, "zero": 1},
    "ZeRO-2": {"data": 2, "zero": 2},
    "ZeRO-3": {"data": 2, "zero": 3},
    "tensor": {"tensor": 2},
    "sequence_parallel": {"tensor": 2, "sequence_parallel": True},
    "pipeline": {"pipeline": 2, "micro_batch": 1},
}


@pytest.mark.parametrize("library", WRITERS)
def test_no_setting_is_dropped_in_silence(library: str) -> None:
    """Every change of a plan is in the file, or in its notes, or refused: no two are alike."""
    sizes = find_model("llama-3.2-1b") if library.startswith("torch") else LLAMA
    written = {}
    for name, change in {"": {}, **CHANGES}.items():
        try:
            settings = settings_for(plan_of(sizes, **change), library)
        except UnsupportedPlan:
            continue
        written[name] = settings.text, settings.notes
    assert len(set(written.values())) == len(written)
    assert "" in written
    assert "ZeRO-3" in written


SHARDED_FLOAT32 = SHARDED | {"precision": "float32", "attention": "math"}
SCALAR_BYTES = 512
TRAINER_SCALARS = 5
"""Of Trainer: its running loss, the norm of the gradients, the number of tokens, the loss over it,
and the loss over the micro-batches. accelerate has the last one of them."""


def peak_of_rank(folder: Path, text: str, ranks: int, **environment: str) -> int:
    """Run a program under `vramlab run`, as the first of these ranks; its peak."""
    program, report = folder / "program.py", folder / "report.json"
    program.write_text(text)
    if ranks > 1:
        environment |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks)}
        environment |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29538"}
    command = [sys.executable, "-m", "vramlab", "run", "--gpu", GPU, "--engine", "portable"]
    subprocess.run(
        [*command, "--json", str(report), str(program)],
        check=True,
        capture_output=True,
        cwd=folder,
        env=os.environ | environment,
    )
    peak_bytes: int = json.loads(report.read_text())["devices"][0]["peak_allocated_bytes"]
    return peak_bytes


def as_accelerate_shards(text: str) -> str:
    """Shard the embedding by itself, and the head with the last norm, as accelerate 1.15 does."""
    (line,) = [line for line in text.splitlines() if line.startswith("fully_shard(model, ")]
    options = line.removeprefix("fully_shard(model, ")
    own = f"fully_shard(model.model.embed_tokens, {options.replace('=False', '=True')}\n"
    tail = f"fully_shard([model.model.norm, model.lm_head], {options}\n"
    return text.replace(line, own + tail + line)


def test_trainer_takes_what_is_planned_and_its_scalars(tmp_path: Path) -> None:
    plan = plan_of(checkpointing="full", checkpoint_every=2, implementation="fused")
    settings = settings_for(plan, "trainer")
    more_bytes = peak_of_rank(tmp_path, settings.text, 1) - estimate(settings.plan).peak_bytes
    assert more_bytes == TRAINER_SCALARS * SCALAR_BYTES


def test_trainer_with_fsdp_takes_what_its_shards_take(tmp_path: Path) -> None:
    plan = plan_of(**SHARDED_FLOAT32)
    script = as_accelerate_shards(settings_for(plan, "fsdp2").text)
    peak_bytes = peak_of_rank(tmp_path, settings_for(plan, "trainer").text, 4)
    planned_bytes = peak_of_script(tmp_path, script, 4)
    assert peak_bytes == planned_bytes + TRAINER_SCALARS * SCALAR_BYTES


PROGRAM = """
import torch, transformers
from accelerate import Accelerator

accelerator = Accelerator()
{model}
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
model, optimizer = accelerator.prepare(model, optimizer)
tokens, labels = (torch.zeros(2, 96, dtype=torch.int64, device="cuda") for _ in range(2))
for step in range(5):
    loss = model(input_ids=tokens, labels=labels)["loss"]
    accelerator.backward(loss)
    del loss
    optimizer.step()
    optimizer.zero_grad()
"""


def test_accelerate_reads_its_yaml_and_takes_what_its_shards_take(tmp_path: Path) -> None:
    from accelerate.commands import launch

    plan = plan_of(**SHARDED_FLOAT32)
    file = tmp_path / "plan.yaml"
    file.write_text(settings_for(plan, "accelerate").text)
    parser = launch.launch_command_parser()
    arguments = parser.parse_args(["--config_file", str(file), "program.py"])
    environment = launch.prepare_multi_gpu_env(launch._validate_launch_command(arguments)[0])
    assert arguments.num_processes == 4
    program = PROGRAM.format(model="\n".join(program_of(plan).model))
    script = as_accelerate_shards(settings_for(plan, "fsdp2").text)
    peak_bytes = peak_of_rank(tmp_path, program, 4, **environment)
    assert peak_bytes == peak_of_script(tmp_path, script, 4) + SCALAR_BYTES


def test_deepspeed_reads_its_configuration() -> None:
    config = pytest.importorskip("deepspeed.runtime.config")
    text = settings_for(plan_of(data=1, offload="optimizer", micro_batch=1), "deepspeed").text
    read = config.DeepSpeedConfig(json.loads(text))
    assert read.zero_optimization_stage == 1
    assert read.gradient_accumulation_steps == 4
    assert read.torch_autocast_enabled


SHARDED_8B = {**SHARDED, "checkpointing": "full", "checkpoint_every": 2, "micro_batch": 1}


def test_torchtitan_reads_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = pytest.importorskip("torchtitan.config.manager")
    plan = plan_of(find_model("llama-3.1-8b"), **SHARDED_8B, tensor=2)
    (tmp_path / "titan_plan.py").write_text(settings_for(plan, "torchtitan").text)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["--module", "titan_plan", "--config", "plan"]
    read = manager.ConfigManager().parse_args(words)
    assert (read.training.local_batch_size, read.training.global_batch_size) == (1, 8)
    assert read.parallelism.tensor_parallel_degree == 2
    assert type(read.activation_checkpoint).__qualname__ == "FullAC.Config"


def test_torchtune_reads_what_is_overridden() -> None:
    registry = pytest.importorskip("torchtune._recipe_registry")
    omegaconf = pytest.importorskip("omegaconf")
    text = settings_for(plan_of(find_model("llama-3.1-8b"), **SHARDED_8B), "torchtune").text
    *_, recipe, _, config = shlex.split(text.splitlines()[0].rstrip("\\"))
    known = {(each.name, one.name) for each in registry.get_all_recipes() for one in each.configs}
    assert (recipe, config) in known
    words = shlex.split(text.partition("\n")[2].replace("\\\n", " "))
    read = omegaconf.OmegaConf.from_dotlist(words)
    assert (read.batch_size, read.gradient_accumulation_steps, read.ac_option) == (1, 2, 2)


def test_models_that_a_library_lacks_are_refused() -> None:
    for library in ("torchtitan", "torchtune"):
        with pytest.raises(UnsupportedPlan, match=r"llama-3\.1-8b.*fsdp2"):
            settings_for(plan_of(), library)


@pytest.mark.parametrize("option", ["--simulate", "--serve"])
def test_an_option_that_would_not_be_used_is_refused(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*WORDS, "--write", "fsdp2", option]) == 2
    assert f"{option} does not work with --write" in capsys.readouterr().err


def test_json_is_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--write", "deepspeed"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["train_batch_size"] == 4
    assert "# In the program: micro-batches of 4 x 1024" in printed.err


def test_the_command_knows_the_libraries() -> None:
    assert tuple(WRITERS) == LIBRARIES


def test_tensor_parallelism_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnsupportedPlan, match="torchtitan"):
        settings_for(plan_of(tensor=2), "fsdp2")


def test_the_first_plan_that_fits_with_this_model_is_written() -> None:
    gpu = f"{GPU},memory=640MiB"
    plans = [plan_of(batch=256), plan_of(GPT2, adapter_rank=4), plan_of(batch=2)]
    plans = [plan.but(gpu=gpu) for plan in plans]
    settings, found = write(plans, "fsdp2")
    assert settings.asked == plans[2]
    assert found.fits
    assert "2 faster plans" in settings.notes[-1]


WORDS = ["plan", "--layers", "2", "--width", "192", "--heads", "4", "--gpu", GPU, "--batch", "4"]


def test_the_command_prints_the_script_and_as_json_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*WORDS, "--write", "fsdp2"]) == 0
    printed = capsys.readouterr().out
    assert main([*WORDS, "--write", "fsdp2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert printed == "".join(f"# {line}\n" for line in data["comments"]) + data["text"]
    assert f"{data['peak_bytes']:,} B" in printed
    compile(printed, "train.py", "exec")


def test_the_search_writes_the_fastest_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fixed = ["--checkpointing", "none", "--loss-chunks", "1", "--offload", "nothing"]
    words = ["plan", "--layers", "1", "--width", "64", "--heads", "4", "--gpu", "T4", "--search"]
    words += ["--sequence", "64", "--micro-batch", "2", *fixed]
    assert main([*words, "--json"]) == 0
    fastest = json.loads(capsys.readouterr().out)["fits"][0]["plan"]
    assert main([*words, "--write", "fsdp2", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["plan"]
    for name in ("precision", "attention", "batch", "micro_batch"):
        assert written[name] == fastest[name]
