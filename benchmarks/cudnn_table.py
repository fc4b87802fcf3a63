"""Make the table of cuDNN's answers: vramlab/cudnn/tables.

vramlab native setup --torch 2.15.0 --cudnn          cuDNN's library, once for each PyTorch
vramlab native setup --torch 2.10.0 --cudnn          that for a V100
python -m benchmarks.cudnn_table                     what is missing in the table
python -m benchmarks.cudnn_table --check             ask a sample again, of each cuDNN that is here

The convolutions are those that usual models ask for: they run on the virtual GPU, which notes each
question of a rule's. Models of torchvision, timm and diffusers take part where they are installed;
what the table has already stays in it, so that none of them is needed twice.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import vramlab
from vramlab import catalogue
from vramlab.cudnn import library, table
from vramlab.cudnn.description import cudnn_json
from vramlab.cudnn.library import CudnnProcess
from vramlab.cudnn.problems import Convolution
from vramlab.cudnn.workspaces import TABLES, VERSIONS, version_text
from vramlab.progress import working
from vramlab.recordings.entries import all_entries, select
from vramlab.recordings.measuring import measure
from vramlab.streams import print_error
from vramlab.zoo import WORKLOADS
from vramlab.zoo import run as run_workload

_TOGETHER = 50
"""Questions asked at once."""
_SAMPLE = 200
RECORDED = (
    "rule/aten.convolution*",
    "experiment/vgg16-*",
    "experiment/operators-save",
    "experiment/checkpoint-resnet1000",
)
"""Entries of recordings that have convolutions, beside the zoo's workloads."""
_PER_GPU_ORDER = (
    *("H200", "A100-40GB", "T4", "RTX-3060", "RTX-4090", "B200", "RTX-5090", "B300"),
    *("Jetson-AGX-Thor", "Jetson-AGX-Orin-64GB"),
)
"""One GPU of each compute capability, the most asked for first."""
_V100 = "V100-16GB"
_OF_V100 = 91002
"""Older than those of the others: newer cuDNNs refuse it."""


@dataclass(frozen=True)
class Usual:
    """A model as people train and run it.

    Attributes:
        make: makes it, on the host.
        inputs: of one sample, as shapes.
        batches: that it is trained with.
        served: batches of inference.
        mixed: dtypes of autocast beside plain float32.
        channels_last: whether people lay it out so with autocast.
    """

    make: Callable[[], nn.Module]
    inputs: tuple[tuple[int, ...], ...] = ((3, 224, 224),)
    batches: tuple[int, ...] = (32, 64, 128)
    served: tuple[int, ...] = (1,)
    mixed: tuple[torch.dtype, ...] = (torch.float16, torch.bfloat16)
    channels_last: bool = True


def usual_models() -> Mapping[str, Usual]:
    """Return the models that are installed here, by name."""
    found: dict[str, Usual] = {"mnist": Usual(_mnist, ((1, 28, 28),), (64, 128), (1, 1000))}
    with vramlab.VirtualGPU("T4"):  # torchvision's CUDA build is not imported without a GPU
        for add in (_torchvision, _timm, _diffusers):
            try:
                found |= add()
            except ImportError as error:
                print_error(f"without {error.name}: its models are left out")
    return found


def _torchvision() -> dict[str, Usual]:
    from torchvision import models

    names = (
        *("resnet18", "resnet50", "vgg16", "mobilenet_v2", "efficientnet_b0"),
        *("convnext_tiny", "vit_b_16"),
    )
    found = {f"torchvision/{name}": Usual(getattr(models, name)) for name in names}
    found["torchvision/resnet18, CIFAR"] = Usual(
        lambda: models.resnet18(num_classes=10), ((3, 32, 32),), (128, 256)
    )
    return found


def _timm() -> dict[str, Usual]:
    import timm

    names = ("resnet50", "vit_base_patch16_224", "convnext_tiny")
    return {
        f"timm/{name}": Usual(partial(timm.create_model, name), batches=(16, 32, 256))
        for name in names
    }


def _diffusers() -> dict[str, Usual]:
    from diffusers import AutoencoderKL, UNet2DConditionModel

    half = (torch.float16, torch.bfloat16)
    sizes = {
        "block_out_channels": (320, 640, 1280, 1280),
        "cross_attention_dim": 768,
        "attention_head_dim": 8,
    }
    unet = lambda: _Unet(UNet2DConditionModel(sample_size=64, **sizes))  # noqa: E731
    blocks = {
        "block_out_channels": (128, 256, 512, 512),
        "down_block_types": ("DownEncoderBlock2D",) * 4,
        "up_block_types": ("UpDecoderBlock2D",) * 4,
        "layers_per_block": 2,
        "latent_channels": 4,
    }
    return {
        "diffusers/Stable Diffusion 1.5, UNet": Usual(
            unet, ((4, 64, 64), (77, 768)), (1, 4), (1, 2), half, channels_last=False
        ),
        "diffusers/Stable Diffusion 1.5, VAE": Usual(
            lambda: _Coded(AutoencoderKL(**blocks)), ((3, 512, 512),), (1,), (1,), half, False
        ),
    }


class _Unet(nn.Module):
    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, latents: Tensor, text: Tensor) -> Tensor:
        result: Tensor = self.unet(latents, 10, text).sample
        return result


class _Coded(nn.Module):
    def __init__(self, vae: nn.Module) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.vae(images).sample
        return result


def _mnist() -> nn.Module:
    """Return the network of pytorch/examples/mnist."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


class _Notes:
    """Notes what rules ask, and knows nothing."""

    def __init__(self) -> None:
        self.asked: dict[Convolution, None] = {}

    def __call__(self, convolution: Convolution, *, benchmark: bool = False) -> None:
        self.asked[convolution] = None


def collect() -> list[Convolution]:
    """Run every model, and what recordings have, and give what their convolutions ask."""
    notes = _Notes()
    collect_recorded(notes)
    for name, usual in usual_models().items():
        with working(f"running {name}"):
            _noting(notes, partial(_use, usual))
    for workload in WORKLOADS:
        if workload.model.startswith(("vgg", "resnet", "convnext", "vit")):
            with working(f"running {workload.id}"):
                _noting(notes, partial(run_workload, workload))
    return list(notes.asked)


def collect_recorded(notes: _Notes) -> None:
    """Note the convolutions of recordings that are no workloads: rules' calls, experiments."""
    for entry in select(all_entries(), RECORDED):
        with working(f"running {entry}"):
            _noting(notes, partial(measure, entry))


def _noting(notes: _Notes, use: Callable[[], object]) -> None:
    # A GPU that computes in every dtype; PyTorch asks the same of all that do.
    gpu = vramlab.VirtualGPU("B200", on_value="nan")
    for device in gpu.machine.devices:
        device.cudnn = notes  # type: ignore[assignment]
    with gpu:
        use()


def _use(usual: Usual) -> None:
    """Train and serve a model in every way."""
    with torch.device("cuda"):
        model = usual.make()
    for layout in (torch.contiguous_format, torch.channels_last)[: 1 + usual.channels_last]:
        model = model.to(memory_format=layout)  # type: ignore[call-overload]
        model = model.float().train()
        for dtype in (torch.float32, *usual.mixed):
            if dtype is torch.float32 and layout is torch.channels_last:
                continue
            for batch in usual.batches:
                with torch.autocast("cuda", dtype, enabled=dtype is not torch.float32):
                    output = model(*(_on_gpu(batch, shape, layout) for shape in usual.inputs))
                output.float().sum().backward()
                model.zero_grad()
        for dtype in (torch.float32, *usual.mixed):
            if dtype is torch.float32 and layout is torch.channels_last:
                continue
            model = model.to(dtype).eval()
            for batch in usual.served:
                with torch.inference_mode():
                    model(*(_on_gpu(batch, shape, layout).to(dtype) for shape in usual.inputs))


def _on_gpu(batch: int, shape: Sequence[int], layout: torch.memory_format) -> Tensor:
    tensor = torch.zeros(batch, *shape, device="cuda")
    return tensor.contiguous(memory_format=layout) if tensor.dim() == 4 else tensor


def fill(asked: Sequence[Convolution], version: int, gpu: str, folder: Path) -> int:
    """Ask what a table lacks, and write it; how many questions that were.

    Args:
        asked: the convolutions of the table, in its order.
        version: of cuDNN.
        gpu: whose compute capability is meant.
        folder: of the tables.
    """
    model = catalogue.find(gpu)
    known = table.answers(version, model.compute_capability, folder)
    missing = [
        convolution
        for convolution in asked
        if known.get(convolution) is None and _is_cudnns(convolution, model.compute_capability)
    ]
    answered = dict(zip(missing, ask(missing, version, gpu), strict=True))
    rows = [
        one if (one := known.get(convolution)) is not None else answered.get(convolution)
        for convolution in asked
    ]
    table.write_answers(version, model.compute_capability, rows, folder)
    return len(missing)


def _is_cudnns(convolution: Convolution, capability: tuple[int, int]) -> bool:
    return convolution.dtype != "bf16" or capability >= (8, 0)


def ask(convolutions: Sequence[Convolution], version: int, gpu: str) -> list[Sequence[int] | None]:
    """Ask the library of a version; SystemExit: it is not here, or answers no more."""
    where = next((one for one in library.installed() if one.version == version), None)
    if where is None:
        raise SystemExit(f"cuDNN {version_text(version)} is not here: `vramlab native setup`.")
    asking = CudnnProcess(where, cudnn_json(catalogue.find(gpu), 13000))
    answers: list[Sequence[int] | None] = []
    for at in range(0, len(convolutions), _TOGETHER):
        with working(f"{gpu}: {at:,} of {len(convolutions):,} asked"):
            part = [each.as_question() for each in convolutions[at : at + _TOGETHER]]
            answered = asking.ask(part)
        if answered is None:
            raise SystemExit(asking.problem)
        answers += [None if isinstance(one, str) else one for one in answered]
    return answers


def check(versions: Iterable[int], folder: Path) -> int:
    """Ask a sample of the table again; how many answers differ."""
    differing = 0
    asked = table.problems(folder)
    for version in versions:
        for gpu in (_V100,) if version == _OF_V100 else _PER_GPU_ORDER:
            capability = catalogue.find(gpu).compute_capability
            known = table.answers(TABLES[version], capability, folder)
            sample = random.Random(f"{version} {gpu}").sample(asked, min(_SAMPLE, len(asked)))
            sample = [one for one in sample if _is_cudnns(one, capability)]
            answered = ask(sample, version, gpu)
            wrong = sum(
                (known.get(one) or ()) != table.shortened(answer or ())
                for one, answer in zip(sample, answered, strict=True)
            )
            print(f"cuDNN {version_text(version)}, {gpu}: {len(sample)} asked, {wrong} differ")
            differing += wrong
    return differing


def main(argv: Sequence[str] | None = None) -> int:
    """Make the table, or check it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cudnn_table")
    parser.add_argument("--check", action="store_true", help="ask a sample again, write nothing")
    parser.add_argument(
        "--gpu", action="append", choices=(*_PER_GPU_ORDER, _V100), help="default: all"
    )
    parser.add_argument("--folder", type=Path, default=table.FOLDER, help="where the table is")
    arguments = parser.parse_args(argv)
    here = {one.version for one in library.installed()} & set(VERSIONS.values())
    if arguments.check:
        return 1 if check(sorted(here), arguments.folder) else 0
    try:
        known = table.problems(arguments.folder)
    except FileNotFoundError:
        known = []
    asked = table.add_problems(collect(), arguments.folder)
    print_error(f"{len(asked):,} convolutions, {len(asked) - len(known):,} of them new")
    for gpu in arguments.gpu or (*_PER_GPU_ORDER, _V100):
        # In order: a table has what differs from the one before it.
        for version in (_OF_V100,) if gpu == _V100 else sorted({*TABLES.values()} - {_OF_V100}):
            count = fill(asked, version, gpu, arguments.folder)
            print_error(f"{gpu}, cuDNN {version_text(version)}: asked {count:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
