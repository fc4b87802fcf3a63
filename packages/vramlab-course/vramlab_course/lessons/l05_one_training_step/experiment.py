"""Lesson 05: what VGG16's layers put out, and whether training doubles it, as document 003 says."""

from __future__ import annotations

import gc

import torch
from torch import Tensor, nn

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab_course.experiments.outcome import Difference, Finding, Outcome
from vramlab_course.experiments.published import figure
from vramlab_course.experiments.registry import experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas import vgg16
from vramlab_course.programs.documents import VGG16
from vramlab_course.programs.unfilled import UnfilledWeights

_BATCHES = (32, 64)


@experiment(
    "vgg16-activations",
    lesson="05",
    question="Do activations need twice their size in training?",
    source="003",
    figures=("vgg16-activations",),
)
def vgg16_activations() -> Outcome:
    """Measure VGG16's layer outputs for one image; and what it costs at a training step's peak.

    The second is the slope of the peak between two batch sizes, in requested bytes, before blocks
    round them. cuDNN's workspaces come and go meanwhile, where they are known: they decide into
    which segments the outputs go, and so what is left of blocks beyond their requests.
    """
    trial = Trial("vgg16-activations", batches=list(_BATCHES))
    with UnfilledWeights():
        model = VGG16()
    model.to("cuda")
    images = torch.zeros(1, *vgg16.IMAGE, device="cuda")
    workspace_bytes = trial.environment.linear_workspace_bytes()
    remainder_bytes = unsplit_remainder_bytes()
    with trial.stage("forward, one image") as forward:
        scores = model(images)
    added_bytes = unsplit_remainder_bytes() - remainder_bytes
    forward.expect(expected("growth", _forward_blocks_bytes(workspace_bytes) + added_bytes))
    with trial.stage("backward, one image"):
        loss = scores.sum()
        loss.backward()
    del scores, loss
    outputs_bytes = _layer_outputs_bytes(model, images)

    # The parameters' gradients are there by now, so that batches differ by activations only.
    peaks_bytes = []
    for batch in _BATCHES:
        del images
        gc.collect()
        images = torch.zeros(batch, *vgg16.IMAGE, device="cuda")
        with trial.stage(f"training step, {batch} images"):
            loss = model(images).sum()
            loss.backward()
            peaks_bytes.append(torch.cuda.memory_stats()["requested_bytes.all.peak"])
        del loss
    smaller, larger = _BATCHES
    image_bytes = tensor_bytes(vgg16.IMAGE)
    per_image_bytes = (peaks_bytes[1] - peaks_bytes[0]) // (larger - smaller)
    return _with_findings(trial, outputs_bytes, per_image_bytes - image_bytes)


def _with_findings(trial: Trial, outputs_bytes: int, per_image_bytes: int) -> Outcome:
    published = figure("vgg16-activations")
    scores = Difference(
        tensor_bytes((vgg16.FULLY_CONNECTED[-1],)),
        "the last layer's 1000 scores: without them it reads 58.12. The same digits come from "
        "cutting 58.1269 instead of rounding it",
    )
    predicted_bytes = vgg16.layer_outputs_bytes()
    trial.find(
        published.id, outputs_bytes, predicted=predicted_bytes, part="", differences=[scores]
    )
    kept_bytes = sum(vgg16.forward_requests_bytes())
    peak_bytes = vgg16.peak_per_image_bytes()
    trial.record(
        Finding(
            figure=published.id,
            published=str(2 * published.number()),
            unit=published.unit_of(),
            source=published.source,
            part="doubled, for training",
            measured=per_image_bytes,
            predicted=peak_bytes,
            differences=(
                Difference(
                    2 * scores.amount,
                    "the last layer's 1000 scores, which the document leaves out, doubled",
                ),
                Difference(
                    2 * (predicted_bytes - int(scores.amount) - published.nearest_bytes()),
                    "the document rounds before it doubles",
                ),
                Difference(
                    -predicted_bytes,
                    "the doubling. It stands for the gradients of all outputs, but they are never "
                    "there together: each goes as soon as the next is made",
                ),
                Difference(
                    -tensor_bytes(vgg16.IMAGE),
                    "the image: it is input, and held apart from what the step adds",
                ),
                Difference(
                    kept_bytes - (predicted_bytes - tensor_bytes(vgg16.IMAGE)),
                    "what layers keep besides their outputs: the place of each maximum (int64), "
                    "the dropouts' outputs and masks, the average pooling's copy",
                ),
                Difference(
                    peak_bytes - kept_bytes,
                    "the peak is where the first Linear layer's gradient is made: two gradients "
                    "of activations are there, and what the classifier kept is not",
                ),
            ),
        )
    )
    return trial.outcome()


def _forward_blocks_bytes(workspace_bytes: int) -> int:
    """Return what one image's forward pass adds to parameters and image, in blocks."""
    return sum(map(block_bytes, vgg16.forward_requests_bytes(workspace_bytes=workspace_bytes)))


def _layer_outputs_bytes(model: VGG16, images: Tensor) -> int:
    """Bytes of the images and of every convolution's, max pooling's and Linear layer's output."""
    outputs: list[Tensor] = []

    def keep(module: nn.Module, args: object, output: Tensor) -> None:
        outputs.append(output)

    hooks = [
        module.register_forward_hook(keep)
        for module in model.modules()
        if isinstance(module, nn.Conv2d | nn.MaxPool2d | nn.Linear)
    ]
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()
    return sum(tensor.numel() * tensor.element_size() for tensor in (images, *outputs))
