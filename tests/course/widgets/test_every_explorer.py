"""What every explorer keeps to: nothing attached is touched, and its signature is what it shows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import ipywidgets
import pytest
import torch

from packages import folder_of
from vramlab import VirtualGPU
from vramlab.measure import StepWork
from vramlab.units import MIB
from vramlab_course.widgets import Explorer

pytestmark = pytest.mark.long

FAST: dict[str, tuple[dict[str, Any], str, Any]] = {
    "accumulation_explorer": ({"rows": 64, "steps": 1, "width": 256}, "loss", "sum"),
    "adapter_explorer": ({"layers": 2, "length": 256}, "four_bits", False),
    "allocator_explorer": ({"memory_mib": 64}, "steps", 1),
    "attention_explorer": ({"length": 256, "heads": 1}, "kind", "flash"),
    "batch_explorer": ({"model": "VGG16, 224 x 224 pixels"}, "optimizer", "SGD"),
    "bert_explorer": ({"batch": 1, "length": 64, "layers": 1, "width": 64}, "attention", "sdpa"),
    "checkpointing_explorer": ({"strategy": "Revolve", "steps": 4}, "slots", 2),
    "compiled_explorer": ({"rows": 64, "width": 64}, "piece", "softmax"),
    "context_explorer": ({"processes": 2}, "processes", 4),
    "data_parallel_explorer": ({"gpus": 2, "batch": 64, "classes": 1024}, "way", "DDP"),
    "eight_bits_explorer": ({"rows": 256, "width": 256, "layers": 1}, "recipe", "16 bits"),
    "float_explorer": ({"number": "1.5"}, "number", "1e-8"),
    "kv_cache_explorer": ({"layers": 1}, "beams", 4),
    "leak_explorer": ({"steps": 4, "rows": 512}, "leak", "losses"),
    "lean_optimizer_explorer": ({"rows": 64, "columns": 64, "count": 1}, "rows", 1),
    "long_context_explorer": ({"tokens": 4096, "pieces": 4}, "ranks", 4),
    "methods_explorer": ({"batch": 4, "chosen": ()}, "checkpointing", True),
    "mixed_precision_explorer": ({"rows": 64, "width": 256, "layers": 1}, "mode", "16 bit"),
    "moe_explorer": ({"tokens": 256, "width": 128, "inner": 128, "ranks": 4}, "share", 0),
    "offloading_explorer": ({"width": 256, "layers": 1, "batch": 1}, "activations", True),
    "optimizer_explorer": ({"width": 64, "layers": 1}, "optimizer", "SGD"),
    "parameters_explorer": ({"width": 16, "layers": 1}, "width", 32),
    "pipeline_explorer": ({"ranks": 2, "micro_batches": 2}, "schedule", "GPipe"),
    "planner_explorer": (
        {"model": "gpt2", "batch": 1, "sequence": 128, "data": 1, "zero": 0},
        "simulate",
        True,
    ),
    "saved_tensors_explorer": ({"rows": 256, "width": 64}, "second", "relu"),
    "serving_explorer": ({"gpu": "T4", "bits": 4}, "bits", 8),
    "steps_explorer": (
        {"steps": {"": [StepWork("operator", "aten.mm", "1", False, 0, 4, 10**9)]}},
        "link",
        9,
    ),
    "tensor_parallel_explorer": ({"width": 1024, "sequence": 256, "ranks": 4}, "batch", 4),
    "training_step_explorer": ({"batch": 64, "width": 256, "depth": 2}, "batch", 128),
    "transformer_explorer": (
        {"batch": 4, "sequence": 128, "layers": 2, "width": 256, "vocabulary": 1024},
        "measure",
        True,
    ),
    "zero_explorer": ({"layers": 2, "width": 1024, "ranks": 8}, "measured", "ZeRO-2"),
}
"""Settings with which an explorer is fast; and a control to change, with its other value."""

KINDS_FOR_KEYBOARDS = (
    ipywidgets.Checkbox,
    ipywidgets.Dropdown,
    ipywidgets.IntSlider,
    ipywidgets.SelectionSlider,
    ipywidgets.Text,
    ipywidgets.Textarea,
    ipywidgets.ToggleButton,
)
"""Elements that browsers reach with Tab, and change with arrows, space, Enter or letters."""


@dataclass(frozen=True)
class Built:
    """An explorer that was built, and changed, while a GPU was attached."""

    name: str
    explorer: Explorer
    begun: dict[str, Any]
    """What its controls were at first."""
    shown_before: str
    used_bytes: int
    """Of the attached GPU, of which the program had asked nothing when it was built."""
    stats: tuple[dict[str, Any], dict[str, Any]]
    """Of the attached GPU, before and after the change."""


HOME = folder_of("vramlab_course")
EXPLORERS: dict[str, Callable[..., Explorer]] = {
    name: function
    for path in sorted(HOME.rglob("*explorer.py"))
    for name, function in vars(
        import_module(".".join(path.relative_to(HOME.parent).with_suffix("").parts))
    ).items()
    if name.endswith("_explorer")
}


@pytest.fixture(scope="module", params=EXPLORERS)
def built(request: pytest.FixtureRequest) -> Iterator[Built]:
    name: str = request.param
    settings, control, other = FAST[name]
    with VirtualGPU("A10") as gpu:
        explorer = EXPLORERS[name](**settings)
        used_bytes = gpu.machine.device(0).used_bytes
        begun = explorer.settings()
        shown = explorer.output.value
        kept = torch.empty(6 * MIB, dtype=torch.uint8, device="cuda")
        before = torch.cuda.memory_stats()
        explorer.controls[control].value = other
        stats = (before, torch.cuda.memory_stats())
        yield Built(name, explorer, begun, shown, used_bytes, stats)
        assert torch.cuda.get_device_name() == "NVIDIA A10"
        assert kept.is_cuda


def test_an_attached_gpu_is_not_disturbed(built: Built) -> None:
    assert built.used_bytes == 0
    before, after = built.stats
    assert after == before


def test_a_change_of_a_control_changes_the_view(built: Built) -> None:
    assert 'role="alert"' not in built.shown_before + built.explorer.output.value
    assert built.explorer.output.value != built.shown_before


def test_every_control_has_a_name_and_is_for_keyboards(built: Built) -> None:
    controls = built.explorer.controls.values()
    assert all(isinstance(control, KINDS_FOR_KEYBOARDS) for control in controls)
    names = [control.description for control in controls]
    assert all(names)
    assert len(set(names)) == len(names)
    assert not any(getattr(control, "continuous_update", False) for control in controls)


def test_controls_begin_at_what_is_given_and_at_defaults(built: Built) -> None:
    given = inspect.signature(EXPLORERS[built.name]).bind(**FAST[built.name][0])
    given.apply_defaults()
    # Where None is given, it is for a number that is not known before.
    told = {name: value for name, value in given.arguments.items() if value is not None}
    shared = built.begun.keys() & told.keys()
    assert shared
    assert {name: built.begun[name] for name in shared} == {name: told[name] for name in shared}


@pytest.mark.parametrize("name", EXPLORERS)
def test_help_says_what_can_be_given_and_what_comes_of_it(name: str) -> None:
    function = EXPLORERS[name]
    signature = inspect.signature(function)
    assert signature.return_annotation is Explorer
    assert "Annotated" not in str(signature)
    arguments = function.__doc__.partition("\nArgs:\n")[2].partition("\n\nRaises:")[0]
    assert re.findall(r"^    (\w+): \S", arguments, re.MULTILINE) == list(signature.parameters)
