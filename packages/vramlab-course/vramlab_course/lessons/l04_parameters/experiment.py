"""Lesson 04: which layers have parameters, how many, and what they take on the GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from vramlab.cuda_rules.sizes import tensor_bytes
from vramlab_course.experiments.outcome import Difference, Outcome
from vramlab_course.experiments.registry import experiment
from vramlab_course.experiments.training_step import FP16_BATCH, FP16_WIDTH
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas import parameters as count
from vramlab_course.formulas import vgg16
from vramlab_course.formulas.packing import packed
from vramlab_course.programs.documents import VGG16, RepeatedLinear
from vramlab_course.programs.unfilled import UnfilledWeights


@dataclass(frozen=True)
class CountedLayer:
    """A layer and what arithmetic says of it."""

    name: str
    """As one would write it."""
    module: nn.Module
    """The layer."""
    tensors_bytes: tuple[int, ...]
    """Its parameters and buffers, in the order in which they reach the GPU."""


def layers() -> list[CountedLayer]:
    """Return the layers that document 001 §2.21 lists, with and without parameters."""

    def float32(*counts: int) -> tuple[int, ...]:
        return tuple(tensor_bytes((elements,)) for elements in counts)

    return [
        CountedLayer("Linear(1024, 4096)", nn.Linear(1024, 4096), float32(1024 * 4096, 4096)),
        CountedLayer(
            "Conv2d(64, 128, 3)",
            nn.Conv2d(64, 128, 3),
            float32(count.conv2d(64, 128, 3, bias=False), 128),
        ),
        CountedLayer("BatchNorm2d(256)", nn.BatchNorm2d(256), (*float32(256, 256, 256, 256), 8)),
        CountedLayer("Embedding(30522, 768)", nn.Embedding(30522, 768), float32(30522 * 768)),
        CountedLayer(
            "MultiheadAttention(768, 12)",
            nn.MultiheadAttention(768, 12),
            float32(3 * 768 * 768, 3 * 768, 768 * 768, 768),
        ),
        CountedLayer("ReLU()", nn.ReLU(), ()),
        CountedLayer("MaxPool2d(2)", nn.MaxPool2d(2), ()),
        CountedLayer("Dropout()", nn.Dropout(), ()),
    ]


@experiment(
    "layer-parameters",
    lesson="04",
    question="Which layers take memory by existing, and how much?",
    source="001 §2.21",
)
def layer_parameters() -> Outcome:
    """Put layers of each kind on the GPU, one after the other, all kept."""
    trial = Trial("layer-parameters")
    sizes_bytes: list[int] = []
    kept = []
    for layer in layers():
        before_bytes, _ = packed(sizes_bytes)
        sizes_bytes += layer.tensors_bytes
        allocated_bytes, _ = packed(sizes_bytes)
        with trial.stage(layer.name, expected("growth", allocated_bytes - before_bytes)):
            kept.append(layer.module.to("cuda"))
    return trial.outcome()


@experiment(
    "vgg16-parameters",
    lesson="04",
    question="What do VGG16's 138 million parameters take?",
    source="003",
    figures=("vgg16-params",),
)
def vgg16_parameters() -> Outcome:
    """Put VGG16 on the GPU. Blocks take a little more than 4 bytes per parameter."""
    trial = Trial("vgg16-parameters")
    sizes_bytes = [tensor_bytes((elements,)) for elements in vgg16.parameter_counts()]
    allocated_bytes, reserved_bytes = packed(sizes_bytes)
    blocks = Difference(
        allocated_bytes - sum(sizes_bytes),
        "blocks: a remainder of at most 1 MiB that a tensor leaves of a segment of the large pool "
        "is not split off, and counts as allocated",
        "c10/cuda/CUDACachingAllocator.cpp, should_split",
    )
    with trial.stage(
        "parameters",
        expected("allocated", allocated_bytes, "vgg16-params", differences=[blocks]),
        expected("reserved", reserved_bytes),
    ):
        with UnfilledWeights():
            model = VGG16()
        model.to("cuda")
    del model
    return trial.outcome()


@experiment(
    "fp16-linear-torchinfo",
    lesson="04",
    question="How far is torchinfo's estimate from what the GPU holds?",
    source="003",
    figures=("fp16-linear-torchinfo",),
)
def fp16_linear_torchinfo(applications: int = 3) -> Outcome:
    """Lay torchinfo's totals for document 003's model beside a forward pass on the GPU.

    torchinfo doubles every layer's output 'for the gradients'; a backward pass never holds them all
    at once.

    Args:
        applications: how often the layer is applied; the document's table has 3 rows.
    """
    import torchinfo

    trial = Trial("fp16-linear-torchinfo", applications=applications)
    rows_bytes = tensor_bytes((FP16_BATCH, FP16_WIDTH), "float16")
    weight_bytes = tensor_bytes((FP16_WIDTH, FP16_WIDTH), "float16")
    with trial.stage("model", expected("growth", weight_bytes)):
        model = RepeatedLinear(applications, FP16_WIDTH).cuda()
    with trial.stage("inputs", expected("growth", rows_bytes)):
        inputs = torch.zeros((FP16_BATCH, FP16_WIDTH), dtype=torch.float16).cuda()
    totals = torchinfo.summary(model, input_data=inputs, verbose=0)
    with trial.stage("forward", expected("growth", applications * rows_bytes)):
        outputs = model(inputs)
    del outputs
    repeated = Difference(
        2 * (applications - 1) * rows_bytes,
        "today's torchinfo adds up the output of every application of a layer; the document's "
        "counted a layer once, though its table has a row for each",
        "torchinfo/model_statistics.py",
    )
    both_bytes = 2 * applications * rows_bytes
    for index, (part, measured, predicted, differences) in enumerate(
        (
            ("input", totals.total_input, rows_bytes, []),
            ("forward/backward pass", totals.total_output_bytes, both_bytes, [repeated]),
            ("params", totals.total_param_bytes, weight_bytes, []),
            (
                "estimated total",
                totals.total_input + totals.total_output_bytes + totals.total_param_bytes,
                rows_bytes + both_bytes + weight_bytes,
                [repeated],
            ),
        )
    ):
        trial.find(
            "fp16-linear-torchinfo",
            measured,
            predicted=predicted,
            index=index,
            part=part,
            differences=differences,
        )
    return trial.outcome()
