"""Lesson 04: VGG16's parameters and operations, as five counters that look at no GPU see them."""

from __future__ import annotations

import contextlib
import io
from importlib.metadata import version

import torch
from torch.utils.flop_counter import FlopCounterMode

from vramlab_course.libraries.measuring import library, without_gpu
from vramlab_course.libraries.results import LibraryRow, versioned
from vramlab_course.programs.documents import VGG16

CONDITIONS = f"PyTorch {torch.__version__}, on the host"
SHAPE = (3, 224, 224)


def measure() -> list[LibraryRow]:
    """Count one image's forward pass with each library, on the host."""
    with without_gpu():
        return _rows()


def _rows() -> list[LibraryRow]:
    model, image = VGG16(), torch.zeros(1, *SHAPE)
    with FlopCounterMode(display=False) as counter:
        model(image)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    summary = library("torchinfo").summary(model, input_data=image, verbose=0)
    macs, thop_parameters = library("thop").profile(VGG16(), inputs=(image,), verbose=False)
    fvcore = library("fvcore.nn")
    counted = fvcore.FlopCountAnalysis(model, image).unsupported_ops_warnings(False)
    with contextlib.redirect_stdout(io.StringIO()):  # it names the layers that it does not know
        # Its report calls DataFrame.append, which pandas 2 has removed; its counts need no pandas.
        nodes = library("torchstat").statistics.ModelStat(VGG16(), SHAPE, 1)._analyze_model()
    stat = f"torchstat {version('torchstat')}"

    def total(what: str) -> int:
        return sum(int(getattr(node, what)) for node in nodes)

    return [
        _row("PyTorch: FlopCounterMode, FLOPs", parameters, counter.get_total_flops()),
        _row(versioned("torchinfo", "mult-adds"), summary.total_params, summary.total_mult_adds),
        _row(versioned("thop", "MACs"), int(thop_parameters), int(macs)),
        _row(
            versioned("fvcore", "flops"),
            fvcore.parameter_count(model)[""],
            int(counted.total()),
        ),
        _row(f"{stat}: Flops", total("parameter_quantity"), total("Flops")),
        _row(f"{stat}: MAdd", total("parameter_quantity"), total("MAdd")),
    ]


def _row(name: str, parameters: int, operations: int) -> LibraryRow:
    return LibraryRow(name, {"parameters": parameters, "operations": operations})
