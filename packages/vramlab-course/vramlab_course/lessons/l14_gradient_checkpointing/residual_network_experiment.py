"""Lesson 14: the 1000-layer residual network of Chen et al., stored whole and in segments."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l14_gradient_checkpointing.residual_network_formulas import (
    BASE,
    CLASSES,
    COLORS,
    EXPANSION,
    SIDE,
    best_cuts,
    forward_bytes,
    parts,
    scaled_stages,
)

FIGURE = "checkpoint-resnet1000"
"""The figure, and the experiment."""

BATCH = 32
"""arXiv 1604.06174 §5.2."""

BLOCKS = 333
"""Of three convolutions each, with the first convolution and the classifier: 1001 layers."""


class ConvolutionUnit(nn.Sequential):
    """Convolution, batch norm, and an in-place ReLU on the norm's result."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class BottleneckBlock(nn.Module):
    """A bottleneck block: (B, C, H, W) to (B, 4 width, H / stride, W / stride)."""

    def __init__(self, inputs: int, width: int, stride: int, first: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            ConvolutionUnit(inputs, width, 1),
            ConvolutionUnit(width, width, 3, stride),
            ConvolutionUnit(width, EXPANSION * width, 1),
        )
        self.beside = (
            ConvolutionUnit(inputs, EXPANSION * width, 1, stride) if first else nn.Identity()
        )

    def forward(self, maps: Tensor) -> Tensor:
        """Add what the body makes of the maps."""
        added: Tensor = self.beside(maps) + self.body(maps)
        return added


def residual_network(stages: Sequence[int]) -> nn.Sequential:
    """Make stem, blocks and head, one after the other.

    Args:
        stages: how many blocks each stage has.
    """
    layers: list[nn.Module] = [
        nn.Sequential(ConvolutionUnit(COLORS, BASE, 7, 2), nn.MaxPool2d(3, 2, padding=1))
    ]
    channels = BASE
    for stage, count in enumerate(stages):
        width = BASE * 2**stage
        for block in range(count):
            first = block == 0
            layers.append(BottleneckBlock(channels, width, 2 if first and stage else 1, first))
            channels = EXPANSION * width
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))
    return nn.Sequential(*layers, head)


def in_segments(network: nn.Sequential, images: Tensor, cuts: Sequence[int]) -> Tensor:
    """Run the network, all segments but the last checkpointed.

    Args:
        network: its parts.
        images: (B, 3, 224, 224).
        cuts: before which parts a new segment begins.
    """
    layers = list(network)
    begin, state = 0, images
    for cut in cuts:
        state = checkpoint(nn.Sequential(*layers[begin:cut]), state, use_reentrant=False)
        begin = cut
    scores: Tensor = nn.Sequential(*layers[begin:])(state)
    return scores


@experiment(
    FIGURE,
    lesson="14",
    question="Does checkpointing bring a residual network of 1000 layers from 48 GB to 7 GB?",
    source="000 §5.3, 001 §4.2",
    figures=(FIGURE,),
    conditions=Conditions(
        gpu="A100-80GB",
        why="stored whole it takes more than 50 GiB. Batch 32 of 224 x 224 is the paper's; its "
        "stages are not published, so they are in the proportions of the authors' example",
    ),
)
def checkpoint_resnet1000(blocks: int = BLOCKS, batch: int = BATCH) -> Outcome:
    """Train the network, stored whole and in segments, with SGD's momentum there.

    Args:
        blocks: of three convolutions each.
        batch: images of 3 x 224 x 224.
    """
    stages = scaled_stages(blocks)
    trial = Trial(FIGURE, stages=list(stages), batch=batch)
    pieces = parts(stages, batch)
    labels = torch.zeros(batch, dtype=torch.long, device="cuda")
    images = torch.zeros(batch, COLORS, SIDE, SIDE, device="cuda")
    with trial.stage("parameters"), torch.device("cuda"):
        network = residual_network(stages)
    with trial.stage("momentum"):
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        optimizer.step()
        optimizer.zero_grad()
    workspace_bytes = trial.environment.linear_workspace_bytes()
    for index, (name, cuts) in enumerate((("stored whole", []), ("segments", best_cuts(pieces)))):
        torch.cuda.empty_cache()
        before_bytes, remainder_bytes = torch.cuda.memory_allocated(), unsplit_remainder_bytes()
        with trial.stage(f"{name}: forward") as forward:
            scores = in_segments(network, images, cuts)
        added_bytes = (
            unsplit_remainder_bytes() - remainder_bytes + (workspace_bytes if not cuts else 0)
        )
        forward.expect(expected("growth", forward_bytes(pieces, cuts) + added_bytes))
        with trial.stage(f"{name}: loss and backward") as backward:
            functional.cross_entropy(scores, labels).backward()
        del scores
        optimizer.zero_grad()
        measured = backward.measurement
        for what, size_bytes in (
            ("kept by the forward pass", forward.measurement.growth_bytes),
            ("activations and gradients at the peak", measured.peak_allocated_bytes - before_bytes),
            ("the process, as nvidia-smi sees it", measured.device_used_after_bytes),
        ):
            trial.find(FIGURE, size_bytes, index=index, part=f"{name}: {what}", note=_UNKNOWN)
    return trial.outcome()


_UNKNOWN = (
    "published for MXNet. Neither the paper nor its program says how many blocks each stage has, "
    "nor what exactly 48 G and 7 G count; here the stages have the proportions of the authors' "
    "example, and the segments are cut as their planner cuts"
)
