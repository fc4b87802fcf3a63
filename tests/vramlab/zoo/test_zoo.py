"""The zoo: lines that make sense together, and programs that do what their line says."""

from __future__ import annotations

import gc

import pytest

from vramlab import zoo
from vramlab.gpu import VirtualGPU
from vramlab.measure import Result
from vramlab.units import MIB
from vramlab.zoo.subjects import SUBJECTS
from vramlab.zoo.table import UnknownWorkloadError
from vramlab.zoo.workload import Workload

DECODERS = ("gpt2", "gpt2-xl", "llama-1b", "qwen-0.6b")
WITHOUT_ATTENTION = ("mlp-1024x4", "mlp-4096x8", "vgg16", "resnet50", "convnext-tiny", "lstm")


def run(workload_id: str) -> Result:
    gc.collect()
    with VirtualGPU("A100-40GB", torch_version="2.11") as gpu:
        result = zoo.run(zoo.find(workload_id))
        assert gpu.unreviewed() == {}
    return result


def test_ids_name_workloads_one_by_one() -> None:
    ids = [workload.id for workload in zoo.WORKLOADS]
    assert len(set(ids)) == len(ids)
    assert [zoo.find(name) for name in ids] == list(zoo.WORKLOADS)
    full = Workload(
        "gpt2", 8, 1024, "autocast-fp16", "adamw", "efficient", checkpointing=True, clipping=True
    )
    assert full.id == "gpt2-b8-s1024-autocast-fp16-adamw-efficient-checkpointing-clipping"
    assert Workload("vgg16", 32, mode="infer").id == "vgg16-b32-fp32-infer"


def test_an_unknown_id_says_where_they_are_listed() -> None:
    with pytest.raises(UnknownWorkloadError, match="vramlab record --list"):
        zoo.find("vgg19")


def test_every_line_of_the_table_makes_sense() -> None:
    assert {workload.model for workload in zoo.WORKLOADS} == set(SUBJECTS)
    for workload in zoo.WORKLOADS:
        assert (workload.attention is None) == (workload.model in WITHOUT_ATTENTION), workload.id
        assert workload.mode != "generate" or workload.model in DECODERS, workload.id
        in_half = workload.precision != "fp32"
        assert workload.attention != "flash" or in_half, workload.id  # flash has no float32 kernel
        is_text = SUBJECTS[workload.model].family == "text"
        assert bool(workload.length) == is_text, workload.id


def test_a_training_program_has_two_steps() -> None:
    result = run("mlp-1024x4-b256-fp32-adamw-clipping")
    step = ("forward", "backward", "clipping", "step", "zero_grad")
    assert [stage.name for stage in result.stages] == [
        "build",
        "to the GPU",
        "batch",
        "optimizer",
        *(f"{name} 1" for name in step),
        *(f"{name} 2" for name in step),
    ]
    # 4 layers of 1024 x 1024 with bias and 1 of 1000 x 1024, float32. The five weights share a
    # segment of 20 MiB; what the last one leaves of it is not split off.
    layers_bytes = 4 * (1024 * 1024 + 1024) * 4 + 1000 * 1024 * 4 + 1000 * 4 + 96  # to 512 B
    rest_bytes = 20 * MIB - 4 * 4 * MIB - 1000 * 1024 * 4
    assert result["to the GPU"].growth_bytes == layers_bytes + rest_bytes
    # AdamW's two states of each weight, each list of 10 in segments of its own, and its steps
    assert 2 * layers_bytes <= result["step 1"].growth_bytes < 2 * (layers_bytes + MIB)
    assert result["step 2"].growth_bytes == 0


def test_checkpointing_keeps_less() -> None:
    plain = run("mlp-1024x4-b256-fp32-adamw")
    checkpointed = run("mlp-1024x4-b256-fp32-adamw-checkpointing")
    # GELU's input, 1 MiB, is what each of the 4 layers does not keep.
    saved_bytes = plain["forward 2"].growth_bytes - checkpointed["forward 2"].growth_bytes
    assert saved_bytes == 4 * 256 * 1024 * 4


def test_inference_keeps_its_outputs() -> None:
    result = run("mlp-1024x4-b256-fp32-infer")
    assert result["forward 2"].growth_bytes == 0  # the outputs take the place of those before
    assert result["del outputs"].growth_bytes == -256 * 1000 * 4
